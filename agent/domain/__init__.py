"""Pure floor: what faults, devices, jobs and documents mean. No clock, no I/O, no loop; `now` is an argument."""
