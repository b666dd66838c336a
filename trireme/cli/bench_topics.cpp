#include "trireme/cli/bench_topics.h"

namespace trireme::cli {
namespace {

constexpr BenchTopic kTopics[] = {
    {"train", "a whole training step: tokens/s, share of the peak, where the time goes",
     "trireme bench train llama-32m --devices 2 --train.micro_batch_size 2",
     "Times --steps optimizer steps after --warmup, on fixed random tokens, with no files and no evaluation.\n"
     "Every setting of trireme pretrain that changes a step works here too: --devices, --strategy, --mesh.tp, ...\n",
     run_bench_train},
    {"ops", "every fused operation beside copy bandwidth, products and attention beside the arithmetic peak",
     "trireme bench ops llama-32m --threads 2",
     "Calls each function of trireme/ops/ops.h, AdamW and the squared norm with the widths of the model.\n"
     "Operations that move memory run at two sizes, beyond the caches and inside one core's. Rate: the bytes they "
     "must\n"
     "move (each input read once, each output written once, what is updated in place both) over their time. Limit: a\n"
     "copy of as many bytes, read plus written; the best of memcpy, plain vector stores and non-temporal stores; for "
     "what\n"
     "is updated in place also a pass in place; for what only reads, a pass that does.\n"
     "Products, attention and cross-entropy: operations (a multiply-add counts 2; of causal attention only the half\n"
     "that is not masked) beside multiply-adds on registers (AMX tiles).\n",
     run_bench_ops},
    {"gemm", "the matrix products of a model beside the arithmetic peak",
     "trireme bench gemm llama-32m --precision bf16-mixed --train.micro_batch_size 2",
     "Times each product of a block and the head in three directions: forward (NT: the weight is transposed), input\n"
     "gradient (NN), weight gradient (TN). Rows: the tokens of one micro-batch. Operations: 2 x tokens x in x out.\n"
     "Limit: independent multiply-adds on registers (AMX tiles where there are any), with as many threads: the\n"
     "median of runs in turn with the row's samples. A few rows of every result are checked.\n",
     run_bench_gemm},
    {"collectives", "all_reduce, all_gather, ... between ranks, 4 KiB to 64 MiB",
     "trireme bench collectives --devices 2 --comm.backend shm",
     "Starts --devices ranks (2 if not said) and times each collective, on shm and gloo (under mpirun on mpi too), or\n"
     "on the --comm.backend given. Times are the slowest rank's. Size: the larger of input and output, as nccl-tests\n"
     "counts it. algbw = size / time; busbw = algbw x 2(N-1)/N for all_reduce, x (N-1)/N for reduce_scatter,\n"
     "all_gather, gather, scatter and all_to_all, x 1 for broadcast, reduce and send_receive (every rank to the "
     "next).\n"
     "Rate: the bytes a rank must read and write where ranks share memory, over the time: 2 x size for all_reduce,\n"
     "all_gather, broadcast, gather, all_to_all and send_receive, (1 + 1/N) for reduce_scatter and reduce, 2/N for\n"
     "scatter and all_gather into one buffer that all ranks share. Limit: what a copy of that size moves while all\n"
     "ranks copy. Shared buffers are those that peers read in place. Every result is checked first.\n",
     run_bench_collectives},
    {"checkpoint", "save and load of a model's training state beside plain file access",
     "trireme bench checkpoint llama-32m --devices 2",
     "Saves and loads the real training state (weights, masters, moments) with the real code, in a temporary folder\n"
     "below out_dir that is removed. Limit: write() and fsync, and read(), of as many bytes in plain files, each rank\n"
     "its share; those beside a copy in memory. The page cache is dropped before reading where the system allows it.\n"
     "A save hashes what it writes on the way; a load verifies what it takes, the optimizer's files with the masters.\n"
     "Beside that: how far a rank's own memory grows, what ranks send each other, and how long training would stand\n"
     "still for a save beside it (save.mode async), as a share of the blocking save.\n",
     run_bench_checkpoint},
    {"data", "the batch loader's tokens/s beside what a training step consumes", "trireme bench data llama-5m",
     "Asks the real batch loader for micro-batches as fast as it can, and then lets one rank train with it. Column\n"
     "'steps fed at once': how many such ranks one loader could feed. Limits: a copy of the bytes that a token must\n"
     "move, and the model's operations at the arithmetic peak.\n",
     run_bench_data},
    {"scaling", "bench train over numbers of ranks: efficiency, and the loss by cause, as a table and a picture",
     "trireme bench scaling llama-32m --ranks 1,2,4 --train.micro_batch_size 2",
     "Runs trireme bench train once for each number of ranks, with the settings given, one thread a rank unless\n"
     "launch.threads_per_rank says otherwise, and one micro-batch a rank. efficiency = tokens/s over ranks x\n"
     "the first run's; share = the same, but only as far as there are cores. 'lost to X' is how much longer X takes\n"
     "than in the first run, in per cent of the step (rank 0); negative: it became shorter. 'cores lacking': 1 - cores "
     "/\n"
     "threads, where threads are more than cores; every cause takes longer then.\n",
     run_bench_scaling},
    {"compare", "two results as JSON: what became faster or slower beyond its spread",
     "trireme bench compare before.json after.json",
     "Matches rows by what was measured and its size. ratio = time after / before; spread = the larger of the two\n"
     "runs' (third minus first quartile) / median: what differs by less is not marked. Takes the JSON of every bench\n"
     "subcommand, bench train's too; both must be of one kind.\n",
     run_bench_compare},
};

}  // namespace

std::span<const BenchTopic> bench_topics() { return kTopics; }

}  // namespace trireme::cli
