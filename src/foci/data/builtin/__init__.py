"""Built-in corpora that several applications use."""
