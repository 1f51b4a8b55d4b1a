"""What a user calls: plans, decorated functions, sessions. The only part that knows both JAX and our runtime."""
