// SPDX-License-Identifier: Apache-2.0
#include "protocol/triton_backend/request_reader.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "protocol/triton_backend/errors.h"
#include "tensor/cuda_runtime_calls.h"

namespace inflight::triton_backend {
namespace {

using serving::Tensor;

constexpr int kSameOrder = TRITONSERVER_TYPE_BF16;
static_assert(static_cast<int>(serving::DataType::kBf16) == kSameOrder &&
              static_cast<int>(serving::DataType::kBytes) == TRITONSERVER_TYPE_BYTES &&
              static_cast<int>(serving::DataType::kInt32) == TRITONSERVER_TYPE_INT32);

struct Piece {
  const void* data = nullptr;
  uint64_t num_bytes = 0;
  TRITONSERVER_MemoryType place = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
};

Result<Piece> PieceOf(TRITONBACKEND_Input* input, uint32_t index) {
  Piece piece;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_InputBuffer(input, index, &piece.data, &piece.num_bytes,
                                                       &piece.place, &piece.device),
                             "TRITONBACKEND_InputBuffer"));
  return piece;
}

Status Append(const Piece& piece, std::byte* target) {
  if (piece.num_bytes == 0) return Status::Ok();
  if (piece.place == TRITONSERVER_MEMORY_GPU) {
    RETURN_IF_ERROR(CheckGpuMemory());
    return cuda::Copy(static_cast<int>(piece.device), target, piece.data, piece.num_bytes);
  }
  std::memcpy(target, piece.data, piece.num_bytes);
  return Status::Ok();
}

Status ReadData(TRITONBACKEND_Input* input, uint64_t num_bytes, uint32_t num_pieces, Tensor& out) {
  if (num_pieces == 1) {
    ASSIGN_OR_RETURN(const Piece only, PieceOf(input, 0));
    if (only.place != TRITONSERVER_MEMORY_GPU) {
      out.data = {static_cast<const std::byte*>(only.data), only.num_bytes};
      return Status::Ok();
    }
  }
  const auto whole = std::make_shared<std::vector<std::byte>>(num_bytes);
  uint64_t filled = 0;
  for (uint32_t i = 0; i < num_pieces; ++i) {
    ASSIGN_OR_RETURN(const Piece piece, PieceOf(input, i));
    if (piece.num_bytes > num_bytes - filled) {
      return Internal("input '" + out.name + "': its buffers are longer than its " +
                      std::to_string(num_bytes) + " bytes");
    }
    const Status copied = Append(piece, whole->data() + filled);
    if (!copied.ok()) return copied.WithPrefix("input '" + out.name + "'");
    filled += piece.num_bytes;
  }
  out.data = {whole->data(), filled};
  out.owner = whole;
  return Status::Ok();
}

Result<Tensor> ReadInput(TRITONBACKEND_Request* request, uint32_t index) {
  TRITONBACKEND_Input* input = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestInputByIndex(request, index, &input),
                             "TRITONBACKEND_RequestInputByIndex"));
  const char* name = nullptr;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  const int64_t* shape = nullptr;
  uint32_t num_dims = 0;
  uint64_t num_bytes = 0;
  uint32_t num_pieces = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_InputProperties(input, &name, &datatype, &shape,
                                                           &num_dims, &num_bytes, &num_pieces),
                             "TRITONBACKEND_InputProperties"));
  Tensor tensor;
  tensor.name = name;
  tensor.datatype = static_cast<serving::DataType>(datatype);
  tensor.shape.assign(shape, shape + num_dims);
  RETURN_IF_ERROR(ReadData(input, num_bytes, num_pieces, tensor));
  return tensor;
}

Status ReadParameter(TRITONBACKEND_Request* request, uint32_t index, serving::Parameters& out) {
  const char* key = nullptr;
  TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_STRING;
  const void* value = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value),
                             "TRITONBACKEND_RequestParameter"));
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      out[key] = std::string(static_cast<const char*>(value));
      return Status::Ok();
    case TRITONSERVER_PARAMETER_INT:
      out[key] = *static_cast<const int64_t*>(value);
      return Status::Ok();
    case TRITONSERVER_PARAMETER_BOOL:
      out[key] = *static_cast<const bool*>(value);
      return Status::Ok();
    case TRITONSERVER_PARAMETER_DOUBLE:
      out[key] = *static_cast<const double*>(value);
      return Status::Ok();
    case TRITONSERVER_PARAMETER_BYTES:
      break;
  }
  return InvalidArgument(key, "the parameter is of type " + std::to_string(type) +
                                  ", must be a string, a number or a boolean");
}

Status ReadParameters(TRITONBACKEND_Request* request, serving::Parameters& out) {
  if (&TRITONBACKEND_RequestParameterCount == nullptr || &TRITONBACKEND_RequestParameter == nullptr)
    return Status::Ok();
  uint32_t count = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestParameterCount(request, &count),
                             "TRITONBACKEND_RequestParameterCount"));
  for (uint32_t i = 0; i < count; ++i) RETURN_IF_ERROR(ReadParameter(request, i, out));
  return Status::Ok();
}

Status ReadOutputNames(TRITONBACKEND_Request* request, std::vector<std::string>& out) {
  uint32_t count = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestOutputCount(request, &count),
                             "TRITONBACKEND_RequestOutputCount"));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestOutputName(request, i, &name),
                               "TRITONBACKEND_RequestOutputName"));
    out.emplace_back(name);
  }
  return Status::Ok();
}

Status ReadTimeout(TRITONBACKEND_Request* request, uint64_t& timeout_us) {
  if (&TRITONBACKEND_InferenceRequestTimeoutMicroseconds == nullptr) return Status::Ok();
  return FromTriton(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &timeout_us),
                    "TRITONBACKEND_InferenceRequestTimeoutMicroseconds");
}

}  // namespace

Result<serving::Request> ReadRequest(TRITONBACKEND_Request* request) {
  serving::Request out;
  const char* id = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestId(request, &id), "TRITONBACKEND_RequestId"));
  out.id = id;
  uint32_t num_inputs = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_RequestInputCount(request, &num_inputs),
                             "TRITONBACKEND_RequestInputCount"));
  out.inputs.reserve(num_inputs);
  for (uint32_t i = 0; i < num_inputs; ++i) {
    ASSIGN_OR_RETURN(Tensor input, ReadInput(request, i));
    out.inputs.push_back(std::move(input));
  }
  RETURN_IF_ERROR(ReadOutputNames(request, out.requested_outputs));
  RETURN_IF_ERROR(ReadParameters(request, out.parameters));
  RETURN_IF_ERROR(ReadTimeout(request, out.timeout_us));
  return out;
}

}  // namespace inflight::triton_backend
