"""llama.cpp's side of vs_generation.

llama_cpp.py build SOURCE FOLDER                    llama-batched-bench, from llama.cpp's sources (PyPI's archive of llama-cpp-python has them)
llama_cpp.py FOLDER FILE TEXTS PROMPT NEW THREADS   tokens/s of new tokens, the reading of prompts included
"""
import json
import subprocess
import sys

OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
           "-DLLAMA_BUILD_SERVER=OFF", "-DBUILD_SHARED_LIBS=OFF"]


def build(source, folder):
    subprocess.run(["cmake", "-G", "Ninja", "-S", source, "-B", folder, *OPTIONS], check=True)
    subprocess.run(["cmake", "--build", folder, "--target", "llama-batched-bench"], check=True)


def measure(folder, file, texts, prompt, new, threads):
    words = [f"{folder}/bin/llama-batched-bench", "-m", file, "-c", texts * (prompt + new), "-npp", prompt, "-ntg", new, "-npl", texts, "-t", threads,
             "-tb", threads, "--output-format", "jsonl"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not rows:
        sys.exit(f"llama-batched-bench told no times:\n{done.stderr[-2000:]}")
    print(texts * new / (rows[-1]["t_pp"] + rows[-1]["t_tg"]))


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(*sys.argv[2:4])
    else:
        measure(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7]))
