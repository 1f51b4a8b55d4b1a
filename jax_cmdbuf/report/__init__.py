"""What a person or a program reads: plans and runs as tables, JSON and HTML."""
