// The name of an exported function, with the instruction set that its copy is compiled for (setup.py).

#pragma once

#define VERNIER_JOIN(name, level) name##_##level
#define VERNIER_NAME(name, level) VERNIER_JOIN(name, level)
#define EXPORTED(name) VERNIER_NAME(name, VERNIER_LEVEL)
