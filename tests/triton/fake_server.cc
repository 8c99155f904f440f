// SPDX-License-Identifier: Apache-2.0
#include "fake_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace {

std::atomic<uint32_t> major_version{1};
std::atomic<uint32_t> minor_version{19};
std::atomic<bool> has_logs{true};
std::mutex mutex;
std::vector<std::string> log;
std::vector<TRITONSERVER_Metric*> metrics;

TRITONSERVER_Error* Error(TRITONSERVER_Error_Code code, std::string message) {
  ++fake_triton::Live().errors;
  return new TRITONSERVER_Error{code, std::move(message)};
}

void Deliver(TRITONBACKEND_Request& request, Sent sent) {
  const std::lock_guard lock(request.mutex);
  request.sent.push_back(std::move(sent));
  request.changed.notify_all();
}

}  // namespace

std::vector<Sent> TRITONBACKEND_Request::WaitUntilReleased() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_releases > 0; });
  return sent;
}

void TRITONBACKEND_Request::WaitForResponses(size_t count) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return sent.size() >= count || num_releases > 0; });
}

namespace fake_triton {

Counts& Live() {
  static Counts counts;
  return counts;
}

void SetVersion(uint32_t major, uint32_t minor) {
  major_version = major;
  minor_version = minor;
}

void SetLogs(bool is_on) { has_logs = is_on; }

std::vector<std::string> TakeLog() {
  const std::lock_guard lock(mutex);
  return std::exchange(log, {});
}

std::map<std::string, double> Metrics() {
  const std::lock_guard lock(mutex);
  std::map<std::string, double> values;
  for (const TRITONSERVER_Metric* const metric : metrics) values[metric->series] = metric->value;
  return values;
}

}  // namespace fake_triton

using fake_triton::Live;

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* message) {
  return Error(code, message);
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  if (error != nullptr) --Live().errors;
  delete error;
}
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) {
  return has_logs && level != TRITONSERVER_LOG_VERBOSE;
}
TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel /*level*/, const char* filename,
                                            int /*line*/, const char* message) {
  const std::lock_guard lock(mutex);
  log.push_back(std::string(filename) + ": " + message);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** base, size_t* byte_size) {
  *base = message->json.data();
  *byte_size = message->json.size();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  if (!message->is_owned) return Error(TRITONSERVER_ERROR_INTERNAL, "the message is the server's");
  --Live().messages;
  delete message;
  return nullptr;
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char* name, TRITONSERVER_ParameterType,
                                                  const void* value) {
  ++Live().parameters;
  return new TRITONSERVER_Parameter{name, static_cast<const char*>(value)};
}
void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter* parameter) {
  --Live().parameters;
  delete parameter;
}

TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily** family,
                                                 TRITONSERVER_MetricKind kind, const char* name,
                                                 const char* description) {
  if (kind != TRITONSERVER_METRIC_KIND_GAUGE || *description == '\0')
    return Error(TRITONSERVER_ERROR_INVALID_ARG, "no gauge with a description");
  static std::map<std::string, std::unique_ptr<TRITONSERVER_MetricFamily>> families;
  auto& found = families[name];
  if (found != nullptr) return Error(TRITONSERVER_ERROR_ALREADY_EXISTS, name);
  found = std::make_unique<TRITONSERVER_MetricFamily>();
  found->name = name;
  *family = found.get();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily*) { return nullptr; }
TRITONSERVER_Error* TRITONSERVER_MetricNew(TRITONSERVER_Metric** metric,
                                           TRITONSERVER_MetricFamily* family,
                                           const TRITONSERVER_Parameter** labels,
                                           uint64_t label_count) {
  ++Live().metrics;
  *metric = new TRITONSERVER_Metric;
  (*metric)->series = family->name + "{";
  for (uint64_t i = 0; i < label_count; ++i)
    (*metric)->series += (i > 0 ? "," : "") + labels[i]->name + "=\"" + labels[i]->value + "\"";
  (*metric)->series += "}";
  const std::lock_guard lock(mutex);
  metrics.push_back(*metric);
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MetricDelete(TRITONSERVER_Metric* metric) {
  const std::lock_guard lock(mutex);
  --Live().metrics;
  std::erase(metrics, metric);
  delete metric;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MetricSet(TRITONSERVER_Metric* metric, double value) {
  metric->value = value;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = major_version;
  *minor = minor_version;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend* backend,
                                                TRITONSERVER_Message** config) {
  *config = &backend->config;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendState(TRITONBACKEND_Backend* backend, void** state) {
  *state = backend->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend* backend, void* state) {
  backend->state = state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute* attributes, TRITONSERVER_InstanceGroupKind, uint64_t,
    const uint64_t*, uint64_t) {
  ++attributes->num_groups;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  *version = model->version;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model,
                                                  TRITONBACKEND_ArtifactType* type,
                                                  const char** location) {
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = model->dir.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, uint32_t config_version,
                                              TRITONSERVER_Message** config) {
  if (config_version != 1) return Error(TRITONSERVER_ERROR_UNSUPPORTED, "version");
  ++Live().messages;
  *config = new TRITONSERVER_Message{model->config, true};
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model,
                                               TRITONBACKEND_Backend** backend) {
  *backend = model->backend;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  *state = model->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  model->state = state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  *model = instance->model;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, bool success,
    uint64_t exec_start_ns, uint64_t compute_start_ns, uint64_t compute_end_ns,
    uint64_t exec_end_ns) {
  const std::lock_guard lock(request->mutex);
  if (request->num_releases > 0) return Error(TRITONSERVER_ERROR_INTERNAL, "released before");
  if (exec_start_ns > compute_start_ns || compute_start_ns > compute_end_ns ||
      compute_end_ns > exec_end_ns)
    return Error(TRITONSERVER_ERROR_INVALID_ARG, "times out of order");
  ++(success ? instance->num_successes : instance->num_failures);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, uint64_t batch_size, uint64_t, uint64_t, uint64_t,
    uint64_t) {
  if (batch_size != 1) return Error(TRITONSERVER_ERROR_INVALID_ARG, "batch size");
  ++instance->num_batches;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestId(TRITONBACKEND_Request* request, const char** id) {
  *id = request->id.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request,
                                                    uint32_t* count) {
  *count = static_cast<uint32_t>(request->inputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request,
                                                      uint32_t index, TRITONBACKEND_Input** input) {
  *input = &request->inputs.at(index);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request,
                                                     uint32_t* count) {
  *count = static_cast<uint32_t>(request->outputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t index,
                                                    const char** name) {
  *name = request->outputs.at(index).c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request,
                                                 uint32_t release_flags) {
  if (release_flags != TRITONSERVER_REQUEST_RELEASE_ALL)
    return Error(TRITONSERVER_ERROR_INVALID_ARG, "release flags");
  const std::lock_guard lock(request->mutex);
  ++request->num_releases;
  request->changed.notify_all();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype,
                                                  const int64_t** shape, uint32_t* dims_count,
                                                  uint64_t* byte_size, uint32_t* buffer_count) {
  *name = input->name.c_str();
  *datatype = input->datatype;
  *shape = input->shape.data();
  *dims_count = static_cast<uint32_t>(input->shape.size());
  *byte_size = 0;
  for (const std::string& buffer : input->buffers) *byte_size += buffer.size();
  *buffer_count = static_cast<uint32_t>(input->buffers.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, uint32_t index,
                                              const void** buffer, uint64_t* byte_size,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_id) {
  *buffer = input->on_device != nullptr ? input->on_device : input->buffers.at(index).data();
  *byte_size = input->buffers.at(index).size();
  *memory_type = input->place;
  *memory_id = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory** factory,
                                                     TRITONBACKEND_Request* request) {
  ++Live().factories;
  *factory = new TRITONBACKEND_ResponseFactory{request};
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory* factory) {
  --Live().factories;
  delete factory;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory* factory,
                                                           uint32_t flags) {
  Deliver(*factory->request, {.is_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response** response,
                                                         TRITONBACKEND_ResponseFactory* factory) {
  ++Live().responses;
  *response = new TRITONBACKEND_Response{factory->request, {}, {}};
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response) {
  --Live().responses;
  delete response;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 TRITONSERVER_DataType, const int64_t*, uint32_t) {
  response->outputs.push_back(std::make_unique<TRITONBACKEND_Output>(
      TRITONBACKEND_Output{.name = name, .bytes = {}, .request = response->request}));
  *output = response->outputs.back().get();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer,
                                               uint64_t byte_size,
                                               TRITONSERVER_MemoryType* memory_type,
                                               int64_t* memory_id) {
  if (output->request->refuses_outputs) return Error(TRITONSERVER_ERROR_UNAVAILABLE, "no room");
  output->bytes.resize(byte_size);
  if (output->request->output_device != nullptr)
    output->on_device = output->request->output_device->allocate(byte_size);
  *buffer = output->on_device != nullptr ? output->on_device : output->bytes.data();
  *memory_type = output->request->output_place;
  *memory_id = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               uint32_t send_flags, TRITONSERVER_Error* error) {
  const std::unique_ptr<TRITONBACKEND_Response> taken(response);
  --Live().responses;
  Sent sent{.is_final = (send_flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0};
  if (error != nullptr) sent.error = *error;
  sent.parameters = response->parameters;
  for (const auto& output : response->outputs) {
    if (output->on_device != nullptr)
      output->request->output_device->copy_to_host(output->bytes.data(), output->on_device,
                                                   output->bytes.size());
    auto& words = sent.outputs[output->name];
    words.resize(output->bytes.size() / sizeof(int32_t));
    if (words.empty()) continue;
    std::memcpy(words.data(), output->bytes.data(), words.size() * sizeof(int32_t));
  }
  Deliver(*response->request, std::move(sent));
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response* response,
                                                             const char* name, const char* value) {
  response->parameters[name] = std::string(value);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response* response,
                                                          const char* name, int64_t value) {
  response->parameters[name] = value;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response* response,
                                                           const char* name, bool value) {
  response->parameters[name] = value;
  return nullptr;
}

}  // extern "C"
