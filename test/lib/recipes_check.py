# SPDX-License-Identifier: Apache-2.0
"""Read the recipes of packaging/ and debian/rules: recipes_check.py TREE FILE, FILE what configure --help prints."""
import os
import re
import subprocess
import sys
import types

tree, help_file = sys.argv[1:]
bad = []
OPTION = re.compile(r"--(?:with|without|enable|disable)-([a-z0-9]+(?:-[a-z0-9]+)*)")
with open(help_file) as file:
    options = file.read()
known = set(OPTION.findall(options)) | {"dependency-tracking", "maintainer-mode", "rpath"}
# What configure takes if it happens to be there, unless it is told.
looked_for = set(re.findall(r"--with-([a-z0-9]+)=check\|", options))


def read(name):
    with open(os.path.join(tree, name)) as file:
        return file.read()


def wrong(name, words):
    bad.append(f"{name}: {words}")


def check_options(name, text):
    """What @text gives to configure: each package by yes or no, or what is built depends on the machine."""
    found = OPTION.findall(text)
    for option in found:
        if option not in known:
            wrong(name, f"configure has no option for {option}")
    chance = looked_for - set(found)
    # These follow from CUDA.
    if "--without-cuda" in text:
        chance -= {"cudart", "nccl"}
    if found and chance:
        wrong(name, f"left to chance: {', '.join(sorted(chance))}")
    return len(found)


# ---- containers ----

INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "LABEL", "RUN", "USER", "VOLUME", "WORKDIR"}


def check_run(name, command):
    if subprocess.run(["sh", "-n"], input=command, text=True).returncode:
        wrong(name, f"no shell command: {command}")
    variables = read("build-aux/packages.sh")
    for variable in re.findall(r"\$(packages_\w+)", command):
        if not re.search(rf"^{variable}=", variables, re.M):
            wrong(name, f"build-aux/packages.sh has no {variable}")


def check_docker(name):
    text = re.sub(r"^#.*\n", "", read(name), flags=re.M).replace("\\\n", " ")
    stages, options = [], 0
    for line in filter(None, map(str.strip, text.split("\n"))):
        word, _, rest = line.partition(" ")
        if word not in INSTRUCTIONS:
            wrong(name, f"no instruction: {line}")
        if word == "FROM":
            stages.append(rest.split(" AS ")[1] if " AS " in rest else "")
        elif not stages and word != "ARG":
            wrong(name, f"before the first stage: {line}")
        if word == "RUN":
            check_run(name, rest)
            options += check_options(name, rest)
        of = re.match(r"--from=(\S+)", rest)
        if word == "COPY" and of and of.group(1) not in stages[:-1]:
            wrong(name, f"no stage {of.group(1)} before")
    if len(stages) < 2 or not options:
        wrong(name, f"{len(stages)} stages, {options} options of configure")


# ---- Spack ----

class Spec:
    """With the variants @chosen, code for GPUs of @cuda_arch, and an MPI."""

    def __init__(self, chosen, cuda_arch=("none",)):
        self.chosen = chosen
        self.variants = {"cuda_arch": types.SimpleNamespace(value=cuda_arch)}
        self.mpicc = "/mpi/bin/mpicc"

    def __contains__(self, word):
        return word[0] == "+" and word[1:] in self.chosen

    def __getitem__(self, name):
        return self


class AutotoolsPackage:
    """As much of Spack's as a recipe's configure_args takes."""

    def with_or_without(self, name, variant=None):
        return [f"--{'with' if '+' + (variant or name) in self.spec else 'without'}-{name}"]

    def enable_or_disable(self, name, variant=None):
        return [f"--{'enable' if '+' + (variant or name) in self.spec else 'disable'}-{name}"]


def check_spack(name):
    variants, conditions = {"cuda"}, []
    package = types.ModuleType("spack.package")
    package.AutotoolsPackage = AutotoolsPackage
    package.CudaPackage = type("CudaPackage", (), {})
    package.Executable = lambda path: lambda: None
    package.license = package.version = lambda *words, **more: None
    package.variant = lambda word, **more: variants.add(word)
    package.depends_on = lambda word, when="", **more: conditions.append(when)
    scope = {"__name__": name}
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": package})
    exec(compile(read(name), name, "exec"), scope)
    recipe = scope["Libstepaf"]()
    for condition in conditions:
        if condition and condition[1:] not in variants:
            wrong(name, f"when {condition!r}, which is no variant")
    for chosen in [variants, set()] + [{variant} for variant in variants]:
        recipe.spec = Spec(chosen)
        args = recipe.configure_args()
        if check_options(name, " ".join(args)) < len(variants):
            wrong(name, f"a variant without an option: {args}")
        if ("MPICC=/mpi/bin/mpicc" in args) != ("mpi" in chosen):
            wrong(name, f"variants {sorted(chosen)}, but {args}")
    for chosen, cuda_arch, expected in (("cuda", ("80", "90"), ["STEPAF_CUDA_ARCHS=80 90"]), ("cuda", ("none",), []),
                                        ("mpi", ("80",), [])):
        recipe.spec = Spec({chosen}, cuda_arch)
        if [word for word in recipe.configure_args() if word.startswith("STEPAF_CUDA_ARCHS")] != expected:
            wrong(name, f"cuda_arch {cuda_arch} with variant {chosen}, but {recipe.configure_args()}")


# ---- conda ----

def check_conda(name):
    try:
        import jinja2
        import yaml
    except ImportError as error:
        print(f"{name}: its options only: {error}")
        check_options(name, read(name))
        return

    def load_file_regex(load_file, regex_pattern, from_recipe_dir):
        return re.search(regex_pattern, read(load_file), re.M)

    # Selectors are comments behind a line.
    text = jinja2.Template(read(name), undefined=jinja2.StrictUndefined).render(
        load_file_regex=load_file_regex, compiler=lambda language: f"{language}_compiler")
    recipe = yaml.safe_load(text)
    version = re.search(r"^version=(.*)", read("VERSION"), re.M).group(1)
    if recipe["package"] != {"name": "libstepaf", "version": version}:
        wrong(name, f"is {recipe['package']}, not {version}")
    if not os.path.exists(os.path.join(tree, os.path.dirname(name), recipe["source"]["path"], recipe["about"]["license_file"])):
        wrong(name, "no license there")
    for line in recipe["build"]["script"]:
        check_run(name, line)
    if not check_options(name, "\n".join(recipe["build"]["script"])):
        wrong(name, "no option of configure")


check_docker("packaging/docker/Dockerfile")
check_docker("packaging/docker/Dockerfile.cuda")
check_spack("packaging/spack/package.py")
check_conda("packaging/conda/meta.yaml")
for other in ("debian/rules", "packaging/rpm/libstepaf.spec.in", "packaging/easybuild/libstepaf.eb"):
    if not check_options(other, read(other)):
        wrong(other, "no option of configure")
print(*bad, sep="\n", end="\n" if bad else "")
sys.exit(bool(bad))
