"""The shell: settings, the roles, the publisher and the command line. Only `bootstrap` names an adapter."""
