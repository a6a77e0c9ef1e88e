# SPDX-License-Identifier: Apache-2.0
# In a repository of Spack's: packages/libstepaf/package.py. There is no download yet: put the tarball into a
# mirror ("spack mirror create"), or build a checkout by "spack dev-build libstepaf@main".
from spack.package import *


class Libstepaf(AutotoolsPackage, CudaPackage):
    """Tensor exchange between attention and FFN ranks of a disaggregated language model."""

    manual_download = True

    license("Apache-2.0")

    version("main")

    variant("mpi", default=True, description="Start by MPI; stepaf_perf and stepaf_decode")
    variant("pmix", default=True, description="Start by PMIx, without MPI")
    variant("rdma", default=True, description="Transport by RDMA")
    variant("ofi", default=False, description="Transport by libfabric")
    variant("ucx", default=False, description="Transport by UCX")
    variant("static", default=False, description="Archives as well")

    depends_on("c", type="build")
    depends_on("autoconf@2.71:", type="build")
    depends_on("automake@1.16:", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hwloc@2:")
    depends_on("libsodium")
    depends_on("mpi", when="+mpi")
    depends_on("jansson", when="+mpi")
    depends_on("openblas", when="+mpi")
    depends_on("pmix@4:", when="+pmix")
    depends_on("rdma-core", when="+rdma")
    depends_on("libfabric@1.17:", when="+ofi")
    depends_on("ucx@1.13:", when="+ucx")
    depends_on("cuda@12:", when="+cuda")

    def autoreconf(self, spec, prefix):
        Executable("./autogen.sh")()

    def configure_args(self):
        args = ["--with-hwloc=yes", "--with-sodium=yes", "--without-nccl", "--without-cunit", "--without-python"]
        for variant in ("mpi", "pmix", "ofi", "ucx", "cuda"):
            args += self.with_or_without(variant)
        for package in ("verbs", "rdmacm", "mlx5"):
            args += self.with_or_without(package, variant="rdma")
        for package in ("jansson", "openblas"):
            args += self.with_or_without(package, variant="mpi")
        args += self.with_or_without("cudart", variant="cuda")
        args += self.enable_or_disable("static")
        if "+mpi" in self.spec:
            args.append("MPICC=" + self.spec["mpi"].mpicc)
        archs = [arch for arch in self.spec.variants["cuda_arch"].value if arch != "none"]
        if "+cuda" in self.spec and archs:
            args.append("STEPAF_CUDA_ARCHS=" + " ".join(archs))
        return args
