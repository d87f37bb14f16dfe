"""Judging rank tables before a job starts: the bytes of a file, every rule, and where in the file it is broken.

The one rule: nothing is passed in silence; a rule that cannot be judged is said to be so, with what is missing.
`textplaces` finds lines, `comments` takes out what is no JSON, `circumstances` is the job's environment, `judge` the
rules that need it, `version2` the rules of version 2.0, `inspect` all of a file, `shared` several tables together,
`proposal` backups for a table that has none.
"""
