"""Why a value is wrong: its class, the operand that was misread, the line of the source."""
