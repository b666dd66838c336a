"""Rules that the whole repository keeps, as functions from its root to a list of violations, one sentence each."""
import re
import subprocess
from pathlib import Path

# design.md section 7 and docs/architecture.md: a folder includes only itself and folders above it.
LAYERS = ("base config door comm ops model data optim shard schedule plan engine checkpoint launch observe train bench doctor cli").split()


def files(root, *patterns):
    """Paths, relative to root, that git tracks or would track."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
                            cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted({Path(name) for name in listed if name and (root / name).is_file()})


def read(root, path):
    return (root / path).read_text(encoding="utf-8", errors="replace")


def includes(text):
    return re.findall(r'^\s*#\s*include\s+["<](trireme/[^">]+)[">]', text, re.M)


def layers(root):
    """Includes that point down the list of layers, or at nothing."""
    wrong = []
    for path in files(root, "trireme/*.h", "trireme/*.cpp"):
        own = path.parts[1]
        if own not in LAYERS:
            wrong.append(f"{path}: trireme/{own} is not in the list of layers")
            continue
        for target in includes(read(root, path)):
            other = Path(target).parts[1]
            if not (root / target).is_file():
                wrong.append(f"{path} includes {target}, which does not exist")
            elif other not in LAYERS or LAYERS.index(other) > LAYERS.index(own):
                wrong.append(f"{path} includes {target}, but {own} stands above {other}")
    return wrong


def listed_in_cmake(root, path):
    """True when the CMakeLists.txt of the file's folder, or of one above it, or a .cmake file there names the file."""
    folder = (root / path).parent
    while folder != root.parent:
        if (folder / "CMakeLists.txt").is_file():
            name = re.escape((root / path).relative_to(folder).as_posix())
            lists = [folder / "CMakeLists.txt", *folder.glob("*.cmake")]
            return any(re.search(rf"(?<![\w.]){name}(?![\w.])", list.read_text(encoding="utf-8")) for list in lists)
        folder = folder.parent
    return False


def registered(root):
    """Sources and tests that no CMakeLists.txt builds."""
    return [f"{path} is in no CMakeLists.txt, so it is never built" for path in files(root, "trireme/*.cpp", "tests/*.cpp")
            if not listed_in_cmake(root, path)]


def headers(root):
    """Headers without an opening comment or an include guard; a shim's are explained together, in its first."""
    wrong = []
    for path in files(root, "trireme/*.h", ":!:trireme/comm/gloo_shim"):
        text = read(root, path)
        if not text.startswith("//"):
            wrong.append(f"{path} does not open with a comment on what it is and why it exists")
        if "#pragma once" not in text and not path.name.endswith("-inl.h"):  # Highway includes those once per target
            wrong.append(f"{path} has no #pragma once")
    return wrong


# What a file uses, by name, and the header of the precompiled one (cmake/TriremeLibTorch.cmake) that declares it.
USES = {
    "algorithm": r"std::(sort|stable_sort|find|find_if|any_of|all_of|none_of|copy|copy_n|fill|fill_n|min_element|max_element|minmax_element"
                 r"|count_if|reverse|rotate|unique|equal|lower_bound|upper_bound|nth_element|clamp|ranges::\w+)\(",
    "array": r"std::array<", "atomic": r"std::atomic", "chrono": r"std::chrono",
    "cmath": r"std::(sqrt|exp|log|log2|pow|abs|fabs|isnan|isinf|isfinite|floor|ceil|round|lround|tanh|hypot)\(",
    "condition_variable": r"std::condition_variable", "filesystem": r"std::filesystem", "fstream": r"std::[io]?fstream",
    "functional": r"std::(function|hash|less|greater)<", "map": r"std::(multi)?map<",
    "memory": r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b",
    "mutex": r"std::(mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once)\b", "optional": r"std::(optional<|nullopt)",
    "set": r"std::(multi)?set<", "span": r"std::span\b", "sstream": r"std::[io]?stringstream",
    "string": r"std::(string|to_string|stoi|stoll|stod|stoul)\b", "thread": r"std::(jthread|thread|this_thread)\b",
    "unordered_map": r"std::unordered_map<", "variant": r"std::(variant<|visit\b|monostate|holds_alternative)", "vector": r"std::vector<",
    "fmt/": r"\bfmt::", "nlohmann/": r"\bnlohmann::", "gmock/|gtest/": r"^TEST(_[FP])?\(", "gmock/": r"\btesting::(HasSubstr|ElementsAre|AllOf|StartsWith)\(",
}


def included(root, path, seen):
    """Every <header> that path includes, itself or through headers of the repository."""
    if path in seen:
        return set()
    seen.add(path)
    found = set()
    for quoted, name in re.findall(r'^\s*#\s*include\s+(["<])([^">]+)[">]', read(root, path), re.M):
        own = [at for at in (Path(name), path.parent / name) if quoted == '"' and (root / at).is_file()]
        found |= included(root, own[0], seen) if own else {name}
    return found


def declared(root):
    """Files that use what only a precompiled header declares to them: with g++, without most of it, they would not compile."""
    wrong = []
    for path in files(root, "trireme/*.h", "trireme/*.cpp", "tests/*.h", "tests/*.cpp"):
        text = re.sub(r"//.*", "", read(root, path))
        headers = included(root, path, set())
        for header, use in USES.items():
            name = re.search(use, text, re.M)
            if name and not any(re.match(header if "/" in header else header + "$", one) for one in headers):
                wrong.append(f"{path} uses {name.group(0).rstrip('(<')} without <{header}>")
    return wrong


# Written in pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "a package registry's host": r"pypi\." r"org|python" r"hosted\.org|deb\.deb" r"ian\.org|npm" r"js\.org|cra" r"tes\.io|proxy\.gol" r"ang\.org",
    "a path of one machine": r"(?<![\w.$}])/(?:wo" r"rk/main|wo" r"rk/shared|ro" r"ot/|ho" r"me/[a-z]+/|tmp/se" r"tup)",
    "an open end": r"\b(?:TO" r"DO(?! \(#\d+\))|FIX" r"ME|X" r"XX\b)",
    "who or what wrote it": r"(?i)co-auth" r"ored-by|gener" r"ated with [A-Z]|as an a" r"i (?:language )?mo" r"del",
    "torch/torch.h, which costs 14 s a file": r"#include [<\"]torch/tor" r"ch\.h",
    "at::parallel_for, which is serial in a file without OpenMP (ops/parallel.h)": r"at::parallel_f" r"or\(",
    "const_data_ptr of a type, whose symbol clang names otherwise than LibTorch does": r"const_data_p" r"tr<[^T]",
}


def words(root):
    wrong = []
    for path in files(root):
        if path.suffix in {".png", ".svg", ".gz", ".bin", ".safetensors"}:
            continue
        for number, line in enumerate(read(root, path).split("\n"), 1):
            for what, pattern in FORBIDDEN.items():
                if re.search(pattern, line):
                    wrong.append(f"{path}:{number} holds {what}: {line.strip()[:80]}")
    return wrong


# base/json.h limits the depth; read_budget.h, the memory too.
PARSERS = {"trireme/base/json.h", "trireme/checkpoint/read_budget.cpp"}


def json_parsers(root):
    """Places that parse JSON without a limit of its depth, which ends the process where a file was made to harm."""
    return [f"{path} parses JSON by itself: base::parse_json limits the depth" for path in files(root, "trireme/*.h", "trireme/*.cpp")
            if str(path) not in PARSERS and re.search(r"(?i)\bjson(?:_t)?::parse\(", read(root, path))]


def make_targets(root):
    """Targets of the Makefile that 'make help' does not explain."""
    text = read(root, "Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.M).group(1).split()
    explained = re.findall(r"^([a-z-]+):.*## \S", text, re.M)
    return [f"make {name} is not explained by make help" for name in phony if name not in explained]
