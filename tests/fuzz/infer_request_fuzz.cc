// SPDX-License-Identifier: Apache-2.0
// Bytes -> ModelInferRequest -> serving::Request: nothing aborts, and every accepted tensor can be
// read, and written back as it is.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "protocol/kserve/grpc/infer_request.h"
#include "protocol/kserve/grpc/infer_response.h"

static const inflight::serving::SharedMemory kNoRegions({.clients_may_register = true,
                                                         .prefixes = {}});

// For a text whose length goes beyond the message around it, protobuf 3.21 reserves up to
// 50,000,000 bytes (its kSafeStringSize), which it never touches, and fails.
extern "C" size_t InflightFuzzBaseBytes() { return size_t{64} << 20; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto message = std::make_shared<inference::ModelInferRequest>();
  if (!message->ParseFromArray(data, static_cast<int>(size))) return 0;
  auto parsed =
      inflight::kserve_grpc::ParseInferRequest(message, kNoRegions.Of({}), /*received_ns=*/1);
  if (!parsed.ok()) {
    CHECK(!parsed.status().message().empty());
    return 0;
  }
  const int num_inputs = message->inputs_size();
  message.reset();

  inflight::serving::Response response;
  response.parameters = parsed->request.parameters;
  response.outputs = std::move(parsed->request.inputs);
  inference::ModelInferResponse out;
  inflight::kserve_grpc::WriteInferResponse(response, out);
  CHECK_EQ(out.outputs_size(), num_inputs);
  CHECK_EQ(out.raw_output_contents_size(), num_inputs);
  for (int i = 0; i < num_inputs; ++i) {
    const auto& tensor = response.outputs[static_cast<size_t>(i)];
    CHECK_EQ(out.raw_output_contents(i).size(), tensor.data.size());
    CHECK(tensor.data.empty() || std::memcmp(out.raw_output_contents(i).data(), tensor.data.data(),
                                             tensor.data.size()) == 0);
    (void)tensor.Strings();  // may say no, may not read out of bounds
  }
  inference::ModelInferResponse again;
  CHECK(again.ParseFromString(out.SerializeAsString()));
  CHECK_EQ(again.outputs_size(), num_inputs);
  return 0;
}
