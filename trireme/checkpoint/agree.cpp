#include "trireme/checkpoint/agree.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/gather.h"

namespace trireme::checkpoint {
namespace {

using nlohmann::json;

/// The failure of `work` as text to be sent, empty when it succeeded.
std::string run(const std::function<void()>& work) {
  const auto pack = [](const char* kind, const std::string& message, const std::string& path, const std::string& tensor,
                       int code = 0) {
    return json{{"kind", kind}, {"message", message}, {"path", path}, {"tensor", tensor}, {"code", code}}.dump(
        -1, ' ', false, json::error_handler_t::replace);
  };
  try {
    work();
    return {};
  } catch (const CommError&) {
    throw;
  } catch (const base::StorageError& error) {
    return pack("", error.what(), error.path, "", error.code);
  } catch (const DamagedError& error) {
    return pack("damaged", error.what(), error.path, error.tensor);
  } catch (const UnreadableError& error) {
    return pack("unreadable", error.what(), error.path, error.tensor);
  } catch (const CheckpointError& error) {
    return pack("", error.what(), error.path, error.tensor);
  } catch (const base::FileError& error) {
    return pack("", error.what(), error.path.string(), "", error.code);
  } catch (const std::exception& error) {
    return pack("", error.what(), "", "");
  }
}

}  // namespace

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
  const auto kind = error.at("kind").get<std::string>();
  const auto path = error.at("path").get<std::string>(), tensor = error.at("tensor").get<std::string>();
  if (const int code = error.at("code").get<int>()) throw base::StorageError(message, path, code);
  if (kind == "damaged") throw DamagedError(message, path, tensor);
  if (kind == "unreadable") throw UnreadableError(message, path, tensor);
  throw CheckpointError(message, path, tensor);
}

}  // namespace trireme::checkpoint
