"""What a user calls: plans, decorated functions, sessions. Only this part knows both JAX and our runtime."""
