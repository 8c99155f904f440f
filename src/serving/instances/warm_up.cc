// SPDX-License-Identifier: Apache-2.0
#include "serving/instances/warm_up.h"

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "serving/configuration/model_config.h"
#include "serving/core/validate.h"
#include "serving/tensors/data_types.h"
#include "serving/tensors/tensor_file.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using ::inference::ModelWarmup;

// Of models that know no requests outside of one. One that no client has: the model may be serving.
constexpr uint64_t kSequence = UINT64_MAX;

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

Result<Tensor> MakeInput(const std::string& name, const ModelWarmup::Input& input, bool is_batched,
                         const fs::path& model_dir) {
  Tensor tensor{.name = name, .datatype = FromProto(input.data_type())};
  ASSIGN_OR_RETURN(tensor.shape, ShapeOf(input, is_batched));
  switch (input.input_data_type_case()) {
    case ModelWarmup::Input::kZeroData:
      RETURN_IF_ERROR(FillWithZeros(tensor));
      break;
    case ModelWarmup::Input::kRandomData:
      RETURN_IF_ERROR(FillWithZeros(tensor));
      if (tensor.datatype != DataType::kBytes) {
        tensor = Tensor::FromBytes(name, tensor.datatype, tensor.shape,
                                   RandomBytes(tensor.data.size(), tensor.datatype));
      }
      break;
    case ModelWarmup::Input::kInputDataFile:
      RETURN_IF_ERROR(
          FillFromFile(model_dir / "warmup", input.input_data_file(), "input_data_file", tensor));
      break;
    case ModelWarmup::Input::INPUT_DATA_TYPE_NOT_SET:
      return InvalidArgument("expected zero_data, random_data or input_data_file");
  }
  return tensor;
}

Result<Request> MakeRequest(const Model& model, const ModelWarmup& sample,
                            const fs::path& model_dir) {
  const bool is_batched = model.config().max_batch_size() > 0;
  Request request;
  request.model_name = model.name();
  request.model_version = model.version();
  request.is_warm_up = true;
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

using InferOne = std::function<void(Request, ResponseHandler)>;

// Waits for the last response.
Status Run(Request request, const InferOne& infer) {
  const auto ended = std::make_shared<std::promise<Status>>();
  std::future<Status> status = ended->get_future();
  request.received_ns = Clock::System().NowNs();
  infer(std::move(request), [ended, first_error = Status()](const Response& response) mutable {
    if (first_error.ok()) first_error = response.status;
    if (response.is_final) ended->set_value(first_error);
  });
  return status.get();
}

Status RunSample(const Model& model, const ModelWarmup& sample, const fs::path& model_dir,
                 int num_instances, const InferOne& infer) {
  ASSIGN_OR_RETURN(const Request request, MakeRequest(model, sample, model_dir));
  const uint64_t num_requests = uint64_t{sample.batch_size()} *
                                std::max<uint32_t>(sample.count(), 1) *
                                static_cast<uint64_t>(num_instances);
  for (uint64_t i = 0; i < num_requests; ++i) {
    Request once = request;
    once.cancel = std::make_shared<CancelToken>();
    RETURN_IF_ERROR(Run(std::move(once), infer));
  }
  return Status::Ok();
}

Status RunSamples(const Model& model, const fs::path& model_dir, int num_instances,
                  const InferOne& infer) {
  for (const ModelWarmup& sample : model.config().model_warmup()) {
    const Status status = RunSample(model, sample, model_dir, num_instances, infer);
    if (status.ok()) continue;
    return InvalidArgument("failed to run warmup sample '" + sample.name() +
                           "': " + status.message());
  }
  return Status::Ok();
}

}  // namespace

Status WarmUpOne(const Model& model, const fs::path& model_dir, const InferOne& infer) {
  return RunSamples(model, model_dir, /*num_instances=*/1, infer);
}

Status WarmUp(Model& model, const fs::path& model_dir) {
  if (model.config().model_warmup().empty()) return Status::Ok();
  const int64_t started_ns = Clock::System().NowNs();
  RETURN_IF_ERROR(RunSamples(model, model_dir, model.num_instances(),
                             [&model](Request request, ResponseHandler handler) {
                               model.Infer(std::move(request), std::move(handler));
                             }));
  model.statistics().Reset();
  logging::Info("model warmed up", {{"model", model.name()},
                                    {"version", model.version()},
                                    {"samples", model.config().model_warmup_size()},
                                    {"ms", (Clock::System().NowNs() - started_ns) / 1'000'000}});
  return Status::Ok();
}

}  // namespace inflight::serving
