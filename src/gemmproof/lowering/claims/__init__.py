"""What a contract promises of compiled code, judged by what launches are compiled to."""
