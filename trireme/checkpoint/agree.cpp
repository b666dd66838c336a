#include "trireme/checkpoint/agree.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"

namespace trireme::checkpoint {
namespace {

using nlohmann::json;

/// The failure of `work` as text to send; empty if it succeeded.
std::string run(const std::function<void()>& work) {
  const auto pack = [](const char* kind, const std::exception& error, const std::string& path = "",
                       const std::string& tensor = "", int code = 0) {
    return base::json_text(
        json{{"kind", kind}, {"message", error.what()}, {"path", path}, {"tensor", tensor}, {"code", code}});
  };
  try {
    try {
      work();
    } catch (const std::filesystem::filesystem_error& error) {
      base::throw_file_error(error);
    }
    return {};
  } catch (const CommError&) {
    throw;
  } catch (const base::StorageError& error) {
    return pack("storage", error, error.path, "", error.code);
  } catch (const DamagedError& error) {
    return pack("damaged", error, error.path, error.tensor);
  } catch (const UnreadableError& error) {
    return pack("unreadable", error, error.path, error.tensor);
  } catch (const CheckpointError& error) {
    return pack("checkpoint", error, error.path, error.tensor);
  } catch (const base::FileError& error) {
    return pack("file", error, error.path.string(), "", error.code);
  } catch (const UsageError& error) {
    return pack("usage", error);
  } catch (const std::exception& error) {
    return pack("failure", error);
  }
}

[[noreturn]] void throw_packed(const json& failure, const std::string& message, bool is_own) {
  const auto kind = failure.at("kind").get<std::string>();
  const auto path = failure.at("path").get<std::string>(), tensor = failure.at("tensor").get<std::string>();
  const auto code = static_cast<int>(base::whole_number(failure.at("code")));
  if (kind == "storage") throw base::StorageError(message, path, code);
  if (kind == "damaged") throw DamagedError(message, path, tensor);
  if (kind == "unreadable") throw UnreadableError(message, path, tensor);
  if (kind == "checkpoint") throw CheckpointError(message, path, tensor);
  if (kind == "file") throw base::FileError(message, path, code);
  if (kind == "usage") throw UsageError(message);
  throw RankError(message, is_own);
}

at::Tensor numbers(std::span<const int64_t> values) {
  at::Tensor tensor = at::empty({std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

std::vector<int64_t> values_of(const at::Tensor& tensor) {
  const int64_t* begin = tensor.data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}

int64_t sum(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

}  // namespace

std::vector<int64_t> all_gather_numbers(comm::Communicator& world, std::span<const int64_t> mine,
                                        const std::vector<int64_t>& counts) {
  at::Tensor output = at::empty({sum(counts)}, at::kLong);
  world.all_gather(output, numbers(mine), counts)->wait();
  return values_of(output);
}

std::vector<int64_t> gather_numbers(comm::Communicator& world, std::span<const int64_t> mine,
                                    const std::vector<int64_t>& counts) {
  at::Tensor output = world.rank() == 0 ? at::empty({sum(counts)}, at::kLong) : at::Tensor();
  world.gather(output, numbers(mine), counts, 0)->wait();
  return world.rank() == 0 ? values_of(output) : std::vector<int64_t>();
}

std::string broadcast_text(comm::Communicator& world, const std::string& text, int root) {
  at::Tensor length = at::full({1}, std::ssize(text), at::kLong);
  world.broadcast(length, root)->wait();
  at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  if (world.rank() == root && !text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  world.broadcast(bytes, root)->wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

void any_rank(comm::Communicator& world, std::vector<uint8_t>& flags) {
  const at::Tensor mine = at::from_blob(flags.data(), {std::ssize(flags)}, at::kByte);
  at::Tensor all = at::empty_like(mine);
  world.all_reduce(all, mine, {.op = comm::ReduceOp::max})->wait();
  std::copy_n(static_cast<const uint8_t*>(all.const_data_ptr()), flags.size(), flags.begin());
}

void agree(comm::Communicator& world, const std::function<void()>& work) {
  std::string failure = run(work);
  // The largest flag belongs to the lowest rank that failed; 0 when none did.
  const int64_t mine = failure.empty() ? 0 : world.size() - world.rank();
  at::Tensor flag = at::full({1}, mine, at::kLong);
  world.all_reduce(flag, flag, {.op = comm::ReduceOp::max})->wait();
  if (flag.item<int64_t>() == 0) return;

  const int rank = world.size() - static_cast<int>(flag.item<int64_t>());
  const json error = base::parse_json(broadcast_text(world, failure, rank));
  std::string message = error.at("message").get<std::string>();
  if (world.size() > 1) message = fmt::format("rank {}: {}", rank, message);
  throw_packed(error, message, rank == world.rank());
}

}  // namespace trireme::checkpoint
