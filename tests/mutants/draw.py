"""Draws the lines that mutants change: `python3 tests/mutants/draw.py`, at the root of the crate."""
import glob
import random
import re

SEED = 3142
MODULES = {
    "algorithm": ("src/core/algorithm", 8),
    "quota": ("src/core/quota", 4),
    "admission": ("src/http/admission", 4),
    "account": ("src/http/account", 6),
    "headers": ("src/http/headers", 4),
    "keys": ("src/http/key", 5),
    "memory": ("src/store/memory", 2),
    "redis": ("src/store/redis/wire src/store/redis/pipeline", 3),
    "deny": ("src/store/deny", 1),
    "lease": ("src/store/lease", 1),
    "failure": ("src/store/failure src/store/breaker", 2),
    "lua": ("lua", 20),
}
# What can be changed: a comparison, a sum, a bound, a condition, a number.
MUTABLE = re.compile(
    r" [<>]=? | [=!~]= | [-+*/%] |\bmin\b|\bmax\b|clamp|saturating|div_ceil|ceil|floor|&&|\|\|| and | or |\bnot |if !"
    r"|\btrue\b|\bfalse\b|\bfilter\b|\b[0-9_]*[0-9]\b"
)
NOT_CODE = re.compile(r"^\s*(//|--|#|use |pub use |mod )")


def lines(folders):
    for folder in folders.split():
        for name in sorted(glob.glob(folder + "/**/*.*", recursive=True)):
            if not name.endswith((".rs", ".lua")) or re.search("tests|models", name):
                continue
            for number, line in enumerate(open(name), 1):
                if "#[cfg(test)]" in line or "mod tests" in line:
                    break
                if MUTABLE.search(line) and not NOT_CODE.match(line):
                    yield name, number, line.strip()


random.seed(SEED)
number = 0
for module, (folders, count) in MODULES.items():
    for name, line, text in random.sample(list(lines(folders)), count):
        number += 1
        print(f"{number:02} {module:9} {name}:{line}: {text}")
