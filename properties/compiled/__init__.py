"""What a contract promises of compiled code, which no case is judged by."""
