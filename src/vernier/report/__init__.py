"""What people see: the console while a run goes on, and what is made from run directories afterwards. Never imports the engine."""
