// SPDX-License-Identifier: Apache-2.0
#include "serving/warm_up.h"

#include <algorithm>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "serving/model_config.h"
#include "serving/validate.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelWarmup;

constexpr uint64_t kMaxInputBytes = uint64_t{1} << 30;
constexpr uint64_t kSequence = 1;  // of models that know no requests outside of one

// The shape of one item, with a batch of one in front where the model batches.
Result<std::vector<int64_t>> ShapeOf(const ModelWarmup::Input& input, bool is_batched) {
  std::vector<int64_t> shape;
  if (is_batched) shape.push_back(1);
  for (const int64_t dim : input.dims()) {
    if (dim < 1)
      return InvalidArgument("dims: got " + std::to_string(dim) + ", expected at least 1");
    shape.push_back(dim);
  }
  return shape;
}

std::string RandomBytes(size_t size, DataType type) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  const unsigned mask = type == DataType::kBool ? 1 : 0xff;
  for (char& byte : bytes) byte = static_cast<char>(random() & mask);
  return bytes;
}

Result<std::string> ReadData(const fs::path& model_dir, const std::string& file) {
  const fs::path path = fs::path(file).lexically_normal();
  if (path.is_absolute() || path.string().starts_with("..")) {
    return InvalidArgument("input_data_file: '" + file + "' lies outside of the model's warmup");
  }
  return ReadFile(model_dir / "warmup" / path, kMaxInputBytes);
}

Status CheckSize(const Tensor& tensor, size_t expected) {
  if (tensor.datatype == DataType::kBytes) {
    ASSIGN_OR_RETURN(const auto strings, tensor.Strings());
    if (strings.size() == expected) return Status::Ok();
    return InvalidArgument("got " + std::to_string(strings.size()) + " elements, expected " +
                           std::to_string(expected));
  }
  if (tensor.data.size() == expected) return Status::Ok();
  return InvalidArgument("got " + std::to_string(tensor.data.size()) + " bytes, expected " +
                         std::to_string(expected));
}

Result<Tensor> MakeInput(const std::string& name, const ModelWarmup::Input& input, bool is_batched,
                         const fs::path& model_dir) {
  Tensor tensor{.name = name, .datatype = FromProto(input.data_type())};
  ASSIGN_OR_RETURN(tensor.shape, ShapeOf(input, is_batched));
  const bool has_texts = tensor.datatype == DataType::kBytes;
  // Texts of length zero are four bytes of length each.
  const size_t element_bytes = has_texts ? 4 : DataTypeSize(tensor.datatype);
  const int64_t num_elements = tensor.num_elements();
  if (num_elements < 0 || static_cast<uint64_t>(num_elements) > kMaxInputBytes / 8) {
    return InvalidArgument("dims: too many elements");
  }
  const size_t num_bytes = static_cast<size_t>(num_elements) * element_bytes;
  std::string bytes;
  switch (input.input_data_type_case()) {
    case ModelWarmup::Input::kZeroData:
      bytes.assign(num_bytes, '\0');
      break;
    case ModelWarmup::Input::kRandomData:
      bytes = has_texts ? std::string(num_bytes, '\0') : RandomBytes(num_bytes, tensor.datatype);
      break;
    case ModelWarmup::Input::kInputDataFile: {
      ASSIGN_OR_RETURN(bytes, ReadData(model_dir, input.input_data_file()));
      break;
    }
    case ModelWarmup::Input::INPUT_DATA_TYPE_NOT_SET:
      return InvalidArgument("expected zero_data, random_data or input_data_file");
  }
  tensor = Tensor::FromBytes(name, tensor.datatype, tensor.shape, std::move(bytes));
  RETURN_IF_ERROR(CheckSize(tensor, has_texts ? static_cast<size_t>(num_elements) : num_bytes));
  return tensor;
}

Result<Request> MakeRequest(const Model& model, const ModelWarmup& sample,
                            const fs::path& model_dir) {
  const bool is_batched = model.config().max_batch_size() > 0;
  Request request;
  request.model_name = model.name();
  request.model_version = model.version();
  for (const auto& [name, input] : sample.inputs()) {
    auto tensor = MakeInput(name, input, is_batched, model_dir);
    if (!tensor.ok()) return tensor.status().WithPrefix("input '" + name + "'");
    request.inputs.push_back(*std::move(tensor));
  }
  if (model.config().has_sequence_batching()) {
    request.sequence_id = kSequence;
    request.sequence_start = request.sequence_end = true;
  }
  RETURN_IF_ERROR(ValidateRequest(model.config(), request));
  return request;
}

// Waits for the last response.
Status Run(Model& model, Request request) {
  const auto ended = std::make_shared<std::promise<Status>>();
  std::future<Status> status = ended->get_future();
  request.received_ns = Clock::System().NowNs();
  model.Infer(std::move(request), [ended, first_error = Status()](Response response) mutable {
    if (first_error.ok()) first_error = response.status;
    if (response.is_final) ended->set_value(first_error);
  });
  return status.get();
}

Status RunSample(Model& model, const ModelWarmup& sample, const fs::path& model_dir) {
  ASSIGN_OR_RETURN(const Request request, MakeRequest(model, sample, model_dir));
  const uint64_t num_requests = uint64_t{sample.batch_size()} *
                                std::max<uint32_t>(sample.count(), 1) *
                                static_cast<uint64_t>(model.num_instances());
  for (uint64_t i = 0; i < num_requests; ++i) {
    Request once = request;
    once.cancel = std::make_shared<CancelToken>();
    RETURN_IF_ERROR(Run(model, std::move(once)));
  }
  return Status::Ok();
}

}  // namespace

Status WarmUp(Model& model, const fs::path& model_dir) {
  if (model.config().model_warmup().empty()) return Status::Ok();
  const int64_t started_ns = Clock::System().NowNs();
  for (const ModelWarmup& sample : model.config().model_warmup()) {
    const Status status = RunSample(model, sample, model_dir);
    if (status.ok()) continue;
    return InvalidArgument("failed to run warmup sample '" + sample.name() +
                           "': " + status.message());
  }
  model.statistics().Reset();
  logging::Info("model warmed up", {{"model", model.name()},
                                    {"version", model.version()},
                                    {"samples", model.config().model_warmup_size()},
                                    {"ms", (Clock::System().NowNs() - started_ns) / 1'000'000}});
  return Status::Ok();
}

}  // namespace inflight::serving
