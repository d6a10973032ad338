"""What `capture` is made of: fakes and their handles, the recorder, the questions put to kernels, Python state."""
