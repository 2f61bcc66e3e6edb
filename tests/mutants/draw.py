"""Draws the lines that mutants change: `python3 tests/mutants/draw.py [SEED]`, at the root of the crate. Of the first seed
there are 60, of another one about a third."""
import glob
import random
import re
import sys

FIRST = 3142
seed = int(sys.argv[1]) if sys.argv[1:] else FIRST
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


random.seed(seed)
number = 0 if seed == FIRST else 60
for module, (folders, count) in MODULES.items():
    count = count if seed == FIRST else (count + 2) // 3
    for name, line, text in random.sample(list(lines(folders)), count):
        number += 1
        print(f"{number:02} {module:9} {name}:{line}: {text}")
