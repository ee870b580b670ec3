"""What is one training? Problems, and the engine that trains many of them in one program."""

if __name__ != "attnsweep.workloads":
    raise ImportError("workloads: this package is attnsweep.workloads; import its names from attnsweep")

import os

# MKL's products round by the memory alignment of a matrix, so a training would depend on its place in a pack. This
# holds before the first product, in the driver and in trainers alike; its cost is not measurable.
os.environ.setdefault("MKL_CBWR", "AVX2,STRICT")
