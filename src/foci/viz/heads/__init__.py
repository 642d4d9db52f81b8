"""What single heads of a trace do, what is answered without them, and which one a trace opens with."""
