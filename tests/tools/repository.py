"""Rules that the whole repository keeps, as functions from its root to a list of violations, one sentence each."""
import functools
import re
import subprocess
from pathlib import Path

# design.md section 7 and docs/architecture.md: a folder includes only itself and folders above it.
LAYERS = ("base config store comm ops machine model text data optim shard schedule plan costs engine generate checkpoint adapt formats settings launch "
          "observe rewards train bench doctor dialects cli").split()
SOURCES = ("trireme/*.h", "trireme/*.cpp", "trireme/*.cu")

# The sections of settings stand in their folders (trireme/*/settings.h), trireme/settings joins them: all without LibTorch.
JOIN = "settings"
LIBTORCH = re.compile(r"(?:ATen|c10|torch|caffe2)/")


def files(root, *patterns):
    """Paths, relative to root, that git tracks or would track."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
                            cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted({Path(name) for name in listed if name and (root / name).is_file()})


@functools.cache
def read(root, path):
    return (root / path).read_text(encoding="utf-8", errors="replace")


def includes(text):
    return re.findall(r'^\s*#\s*include\s+["<](trireme/[^">]+)[">]', text, re.M)


def is_section(path):
    """trireme/<folder>/settings.h or settings.cpp, or of one more section: settings_lr.h."""
    return len(path.parts) == 3 and re.fullmatch("settings(_.*)?", path.stem) is not None


def may_include(path, target):
    """Whether a file of trireme/ may include another one."""
    own, other = path.parts[1], target.parts[1]
    if own not in LAYERS or other not in LAYERS:
        return False
    if own == JOIN:  # above the folders whose sections it joins
        return other in ("base", "config", JOIN) or is_section(target) or target.as_posix() == "trireme/schedule/pipeline.h"
    if is_section(path) and LAYERS.index(other) < LAYERS.index(own):
        return other in ("base", "config") or is_section(target)
    return LAYERS.index(other) <= LAYERS.index(own)


def layers(root):
    """Includes that point down the list of layers, or at nothing."""
    wrong = []
    for path in files(root, "trireme/*.h", "trireme/*.cpp", "trireme/*.cu"):
        own = path.parts[1]
        if own not in LAYERS:
            wrong.append(f"{path}: trireme/{own} is not in the list of layers")
            continue
        for target in includes(read(root, path)):
            other = Path(target).parts[1]
            if not (root / target).is_file():
                wrong.append(f"{path} includes {target}, which does not exist")
            elif not may_include(path, Path(target)):
                wrong.append(f"{path} includes {target}, but {own} stands above {other}" if not is_section(path) and own != JOIN
                             else f"{path} includes {target}, but settings see sections, base and config alone")
    return wrong


def light_settings(root):
    """Sections of settings, and what joins them, that reach LibTorch: a wrong setting is refused in milliseconds."""
    wrong = []
    sections = [path for path in files(root, "trireme/*.h", "trireme/*.cpp") if is_section(path)]
    for path in [*sections, *files(root, f"trireme/{JOIN}/*.h", f"trireme/{JOIN}/*.cpp", "trireme/config/*.h")]:
        heavy = sorted(name for name in included(root, path)[1] if LIBTORCH.match(name))
        if heavy:
            wrong.append(f"{path} reaches <{heavy[0]}>")
    return wrong


def enums(root):
    """Enums of trireme/ with the enumerators of another one that a section of settings declares."""
    found = []
    for path in files(root, "trireme/*.h"):
        text = re.sub(r"//.*", "", read(root, path))
        for name, body in re.findall(r"\benum\s+(?:class\s+|struct\s+)?(\w+)[^;{]*\{([^}]*)\}", text):
            names = frozenset(re.sub(r"=.*", "", one, flags=re.S).strip() for one in body.split(",")) - {""}
            found.append((path, name, names))
    wrong = []
    for path, name, names in found:
        for other, twin, same in found:
            if is_section(path) and names == same and (path, name) < (other, twin) or (
                    is_section(path) and not is_section(other) and names == same):
                wrong.append(f"{other} says {twin} {{{', '.join(sorted(same))}}}, which is {name} of {path}")
    return sorted(set(wrong))


def listed_in_cmake(root, path):
    """True when the CMakeLists.txt of the file's folder, or of one above it, or a .cmake file there names the file."""
    folder = (root / path).parent
    while folder != root.parent:
        if (folder / "CMakeLists.txt").is_file():
            name = re.escape((root / path).relative_to(folder).as_posix())
            lists = [folder / "CMakeLists.txt", *folder.rglob("*.cmake")]
            return any(re.search(rf"(?<![\w.]){name}(?![\w.])", list.read_text(encoding="utf-8")) for list in lists)
        folder = folder.parent
    return False


def is_listed(root, path):
    """The same, or one of the sections that trireme/settings builds."""
    join = root / "trireme" / JOIN / "CMakeLists.txt"
    return listed_in_cmake(root, path) or (
        is_section(path) and join.is_file() and f"../{path.parts[1]}/{path.stem}.cpp" in join.read_text(encoding="utf-8"))


def registered(root):
    """Sources and tests that no CMakeLists.txt builds."""
    wrong = [f"{path} is in no CMakeLists.txt, so it is never built" for path in files(root, "trireme/*.cpp", "tests/*.cpp")
             if not is_listed(root, path)]
    fuzz = root / "tests/fuzz/CMakeLists.txt"  # whose build make test does not make
    parsers = re.findall(r"(?<![\w./])\w+/[\w/]+\.cpp", fuzz.read_text()) if fuzz.is_file() else []
    return wrong + [f"tests/fuzz/CMakeLists.txt lists trireme/{name}, which does not exist" for name in parsers if not (root / "trireme" / name).is_file()]


def headers(root):
    """Headers without an opening comment or an include guard; a shim's are explained together, in its first."""
    wrong = []
    for path in files(root, "trireme/*.h", ":!:trireme/comm/gloo/shim"):
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


@functools.cache
def own_includes(root, path):
    """The headers that path itself includes: (those of the repository, the names of others)."""
    own, others = [], set()
    for quoted, name in re.findall(r'^\s*#\s*include\s+(["<])([^">]+)[">]', read(root, path), re.M):
        here = [at for at in (Path(name), path.parent / name) if quoted == '"' and (root / at).is_file()]
        own += here[:1]
        others |= set() if here else {name}
    return own, others


def included(root, path):
    """(Headers of the repository, path too, and names of others) that path includes, itself or through those."""
    own, others, waiting = {path}, set(), [path]
    while waiting:
        further, names = own_includes(root, waiting.pop())
        waiting += [header for header in further if header not in own]
        own |= set(further)
        others |= names
    return own, others


def declared(root):
    """Files that use what only a precompiled header declares to them: with g++, without most of it, they would not compile."""
    wrong = []
    for path in files(root, "trireme/*.h", "trireme/*.cpp", "tests/*.h", "tests/*.cpp"):
        text = re.sub(r"//.*", "", read(root, path))
        _, headers = included(root, path)
        for header, use in USES.items():
            name = re.search(use, text, re.M)
            if name and not any(re.match(header if "/" in header else header + "$", one) for one in headers):
                wrong.append(f"{path} uses {name.group(0).rstrip('(<')} without <{header}>")
    return wrong


# A declaration or definition of a type.
TYPE = r"(?:struct|class|enum(?: class)?|union|concept|using|typename)\s+(?:alignas\(\w+\)\s*|\[\[\w+\]\]\s*)?([A-Z]\w*)\b"
# Before a name: not one of another library.
FOREIGN = r"(?<!std::)(?<!at::)(?<!c10::)(?<!c10d::)(?<!torch::)(?<!YAML::)(?<!detail::)(?<!json::)(?<!gloo::)(?<!arrow::)(?<!testing::)"


def own_types(root):
    """Files that use a type of ours which no header that they include declares: a unit of a unity build hides it, and a
    compiler that takes the file by itself stops there."""
    code = {path: re.sub(r'//.*|"(?:[^"\\\n]|\\.)*"|^TEST.*', "", read(root, path), flags=re.M) for path in files(root, "trireme/*.h", "trireme/*.cpp", "tests/*.h", "tests/*.cpp")}
    declared_in = {path: set(re.findall(TYPE, text)) for path, text in code.items()}
    ours = set()
    for path, text in code.items():
        if path.suffix == ".h" and path.parts[0] == "trireme":
            ours |= set(re.findall(r"^(?:template <.*>\n)?" + TYPE, text, re.M))
    wrong = []
    for path, text in code.items():
        own, _ = included(root, path)
        known = set().union(*(declared_in.get(file, set()) for file in own))
        for name in sorted(set(re.findall(FOREIGN + r"\b([A-Z]\w*[a-z0-9][A-Z]\w*)\b", text)) & ours - known):
            wrong.append(f"{path} uses {name}, which no header that it includes declares")
    return wrong


# Written in pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "a package registry's host": r"pypi\." r"org|python" r"hosted\.org|deb\.deb" r"ian\.org|npm" r"js\.org|cra" r"tes\.io|proxy\.gol" r"ang\.org",
    "a path of one machine": r"(?<![\w.$}])/(?:wo" r"rk/main|wo" r"rk/shared|ro" r"ot/|ho" r"me/[a-z]+/|tmp/se" r"tup)",
    "an open end": r"\b(?:TO" r"DO(?! \(#\d+\))|FIX" r"ME|X" r"XX\b)",
    "who or what wrote it": r"(?i)co-auth" r"ored-by|gener" r"ated with [A-Z]|as an a" r"i (?:language )?mo" r"del",
    "torch/torch.h, which costs 14 s a file": r"#include [<\"]torch/tor" r"ch\.h",
    "at::parallel_for or its like, which are serial in a file without OpenMP (ops/parallel.h)": r"at::parallel_(?:f" r"or|red" r"uce)\(",
    "const_data_ptr of a type, whose symbol clang names otherwise than LibTorch does": r"const_data_p" r"tr<[^T]",
}


def words(root):
    wrong = []
    for path in files(root):
        if path.suffix in {".png", ".svg", ".gz", ".bin", ".safetensors"}:
            continue
        text = read(root, path)
        held = {what: pattern for what, pattern in FORBIDDEN.items() if re.search(pattern, text)}
        for number, line in enumerate(text.split("\n") if held else [], 1):
            for what, pattern in held.items():
                if re.search(pattern, line):
                    wrong.append(f"{path}:{number} holds {what}: {line.strip()[:80]}")
    return wrong


# base/json.cpp limits the depth; read_budget.cpp, the memory too.
PARSERS = {"trireme/base/json.cpp", "trireme/checkpoint/read_budget.cpp"}


def json_parsers(root):
    """Places that parse JSON without a limit of its depth, which ends the process where a file was made to harm."""
    return [f"{path} parses JSON by itself: base::parse_json limits the depth" for path in files(root, "trireme/*.h", "trireme/*.cpp")
            if str(path) not in PARSERS and re.search(r"(?i)\bjson(?:_t)?::parse\(", read(root, path))]


# Each of these catches what its threads throw and hands it on, or runs loops that throw nothing (limits.cpp).
THREADS = {"trireme/base/crew.h", "trireme/bench/measure.cpp", "trireme/bench/measure.h", "trireme/checkpoint/save_job.cpp", "trireme/checkpoint/save_job.h",
           "trireme/checkpoint/window_reader.h", "trireme/comm/lane.h", "trireme/data/batch_loader.h", "trireme/data/ordered_workers.h",
           "trireme/launch/machines/rendezvous.h", "trireme/launch/machines/rendezvous_pulse.cpp", "trireme/launch/supervise/notice.cpp",
           "trireme/machine/limits.cpp", "trireme/store/server.cpp", "trireme/store/server.h",
           "trireme/train/saver.cpp", "trireme/train/stopping.cpp"}


def threads(root):
    """Further places that start a thread: an exception in it ends the process without a word, if nothing catches it."""
    return [f"{path} starts a thread by itself: base::Crew hands on what it throws" for path in files(root, "trireme/*.h", "trireme/*.cpp")
            if str(path) not in THREADS and re.search(r"\bstd::(?:jthread|thread|async)\b(?!::)", re.sub(r"//.*", "", read(root, path)))]


def make_targets(root):
    """Targets of the Makefile that 'make help' does not explain."""
    text = read(root, "Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.M).group(1).split()
    explained = re.findall(r"^([a-z-]+):.*## \S", text, re.M)
    return [f"make {name} is not explained by make help" for name in phony if name not in explained]


def minutes(root):
    """Where README.md says other minutes than scripts/minutes, which everything else reads."""
    found = dict(re.findall(r"^(\w+)=(\d+)$", read(root, "scripts/minutes"), re.M))
    said = ["installs what is needed ({setup} minutes)", "builds ({program} minutes)", "builds everything ({everything} minutes the first time)",
            "of each campaign ({tests} minutes)"]
    text = " ".join(read(root, "README.md").split())
    return [f"README.md does not say '{one.format(**found)}', as scripts/minutes does" for one in said if one.format(**found) not in text]


# Files that everything is put into unless somebody looks: the most lines that they may have.
MOST_LINES = {"trireme/train/loop.cpp": 200, "trireme/train/pretrain.cpp": 120, "trireme/cli/start.cpp": 240}
MOST_LINES_OF_A_FUNCTION = 60


def functions(text):
    """The functions of a source, as (first line, number of lines). A lambda is part of the function around it."""
    found, begin, depths = [], 0, []
    # Directives, comments and literals are blanked, so that every brace left is one of the code's.
    code = re.sub(r'^#[^\n]*|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)
    for brace in re.finditer(r"[{};]", code):
        head = code[begin:brace.start()]
        if brace.group() == "{":
            start = re.match(r"(\s|public:|private:|protected:)*", head).end()
            is_scope = re.match(r"(namespace|class|struct|union|enum|extern)\b", head[start:])
            depths.append(None if is_scope else begin + start)
        elif brace.group() == "}" and depths:
            start = depths.pop()
            if start is not None and all(depth is None for depth in depths):
                found.append((code.count("\n", 0, start) + 1, code.count("\n", start, brace.end()) + 1))
        if all(depth is None for depth in depths):
            begin = brace.end()
    return found


def sizes(root):
    """Files and functions that have grown beyond what MOST_LINES allows."""
    wrong = []
    for path, most in MOST_LINES.items():
        if not (root / path).is_file():
            continue
        text = read(root, path)
        if text.count("\n") > most:
            wrong.append(f"{path} has {text.count(chr(10))} lines, more than {most}")
        wrong += [f"{path}:{first} begins a function of {lines} lines, more than {MOST_LINES_OF_A_FUNCTION}"
                  for first, lines in functions(text) if lines > MOST_LINES_OF_A_FUNCTION]
    return wrong


def pages(root):
    """What the pages on adding something print that the sources do not say: code blocks ("```cpp FILE"; a toy that has one block is printed whole),
    and lengths of files."""
    wrong = []
    for page in files(root, "docs/adding-*.md"):
        text = read(root, page)
        blocks = re.findall(r"^```cpp ?(.*)\n((?:.*\n)*?)```$", text, re.M)
        for name, block in blocks:
            source = read(root, name) if name and (root / name).is_file() else ""
            is_toy = Path(name).name.startswith("toy_") and not name.endswith("_test.cpp") and [one for one, _ in blocks].count(name) == 1
            if block not in source or is_toy and block != source:
                wrong.append(f"{page} prints code that is not {'all of ' if is_toy else 'in '}{name or 'any file'}: {block[:80]!r}")
        for name, lines in re.findall(r"^\| `([^`]+)` \| (\d+) \|", text, re.M):
            length = read(root, name).count("\n") if (root / name).is_file() else 0
            if abs(int(lines) - length) > 1 + length // 10:  # a tenth more or less is the same to a reader
                wrong.append(f"{page} says that {name} has {lines} lines; it has {length}")
    return wrong
