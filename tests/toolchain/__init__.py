"""Stand-ins for the toolchain tests: a tiny llama.cpp, a package index and git repositories."""
