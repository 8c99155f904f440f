// SPDX-License-Identifier: Apache-2.0
// What the server looks up in this library, and nothing else is exported. A version of a model is
// made in ModelInitialize and shared by its instances; docs/triton-plugin.md says how to use it.
//
// No exception leaves a function: the server is written against C.
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/log_settings.h"
#include "base/status_macros.h"
#include "protocol/triton_backend/backend_options.h"
#include "protocol/triton_backend/errors.h"
#include "protocol/triton_backend/plugin_model.h"
#include "protocol/triton_backend/triton_api.h"
#include "serving/repository/engine_loader.h"

namespace inflight::triton_backend {
namespace {

// The least version of the interface that this library runs with; of what came later it uses what
// the server has (triton_api.h).
constexpr uint32_t kMajorVersion = 1;
constexpr uint32_t kMinorVersion = 13;

TRITONSERVER_LogLevel LevelOf(logging::Level level) {
  switch (level) {
    case logging::Level::kVerbose:
      return TRITONSERVER_LOG_VERBOSE;
    case logging::Level::kInfo:
      return TRITONSERVER_LOG_INFO;
    case logging::Level::kWarning:
      return TRITONSERVER_LOG_WARN;
    case logging::Level::kError:
      return TRITONSERVER_LOG_ERROR;
  }
  return TRITONSERVER_LOG_INFO;
}

void WriteLog(logging::Level level, const char* file, int line, const char* message) {
  if (TRITONSERVER_Error* const error =
          TRITONSERVER_LogMessage(LevelOf(level), file, line, message)) {
    TRITONSERVER_ErrorDelete(error);  // there is no other log to tell it to
  }
}

bool IsLogged(logging::Level level) { return TRITONSERVER_LogIsEnabled(LevelOf(level)); }

constexpr logging::HostLog kServersLog = {.is_enabled = IsLogged, .write = WriteLog};

Status CheckVersion() {
  uint32_t major = 0;
  uint32_t minor = 0;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ApiVersion(&major, &minor), "TRITONBACKEND_ApiVersion"));
  if (major == kMajorVersion && minor >= kMinorVersion) return Status::Ok();
  return Unimplemented("this server has version " + std::to_string(major) + "." +
                       std::to_string(minor) + " of the interface for backends, needed is " +
                       std::to_string(kMajorVersion) + "." + std::to_string(kMinorVersion) +
                       " or a later " + std::to_string(kMajorVersion) +
                       ".x (Triton 23.05 and later)");
}

Result<std::string> BackendConfig(TRITONBACKEND_Backend* backend) {
  TRITONSERVER_Message* message = nullptr;  // the server's
  RETURN_IF_ERROR(
      FromTriton(TRITONBACKEND_BackendConfig(backend, &message), "TRITONBACKEND_BackendConfig"));
  const char* text = nullptr;
  size_t num_bytes = 0;
  RETURN_IF_ERROR(FromTriton(TRITONSERVER_MessageSerializeToJson(message, &text, &num_bytes),
                             "TRITONSERVER_MessageSerializeToJson"));
  return std::string(text, num_bytes);
}

Status InitializeBackend(TRITONBACKEND_Backend* backend) {
  RETURN_IF_ERROR(CheckVersion());
  logging::SetHostLog(kServersLog);
  ASSIGN_OR_RETURN(const std::string config, BackendConfig(backend));
  ASSIGN_OR_RETURN(const OpenOptions options, ParseBackendOptions(config));
  ASSIGN_OR_RETURN(serving::EngineLoader load, serving::LocalEngineLoader(options));
  auto state = std::make_unique<serving::EngineLoader>(std::move(load));
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_BackendSetState(backend, state.get()),
                             "TRITONBACKEND_BackendSetState"));
  (void)state.release();  // FinalizeBackend has it
  return Status::Ok();
}

Status FinalizeBackend(TRITONBACKEND_Backend* backend) {
  void* state = nullptr;
  RETURN_IF_ERROR(
      FromTriton(TRITONBACKEND_BackendState(backend, &state), "TRITONBACKEND_BackendState"));
  delete static_cast<serving::EngineLoader*>(state);
  return Status::Ok();
}

Status SetAttributes(TRITONBACKEND_BackendAttribute* attributes) {
  // Where a configuration has no groups: one instance, wherever --backend-config says.
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
                                 attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, /*count=*/1,
                                 /*device_ids=*/nullptr, /*id_count=*/0),
                             "TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup"));
  if (&TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading == nullptr)
    return Status::Ok();
  return FromTriton(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
                        attributes, /*is_enabled=*/true),
                    "TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading");
}

Status InitializeModel(TRITONBACKEND_Model* model) {
  TRITONBACKEND_Backend* backend = nullptr;
  RETURN_IF_ERROR(
      FromTriton(TRITONBACKEND_ModelBackend(model, &backend), "TRITONBACKEND_ModelBackend"));
  void* load = nullptr;
  RETURN_IF_ERROR(
      FromTriton(TRITONBACKEND_BackendState(backend, &load), "TRITONBACKEND_BackendState"));
  ASSIGN_OR_RETURN(std::unique_ptr<PluginModel> made,
                   PluginModel::Load(model, *static_cast<serving::EngineLoader*>(load)));
  RETURN_IF_ERROR(
      FromTriton(TRITONBACKEND_ModelSetState(model, made.get()), "TRITONBACKEND_ModelSetState"));
  (void)made.release();  // FinalizeModel has it
  return Status::Ok();
}

Status FinalizeModel(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelState(model, &state), "TRITONBACKEND_ModelState"));
  delete static_cast<PluginModel*>(state);
  return Status::Ok();
}

Result<PluginModel*> ModelOf(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelInstanceModel(instance, &model),
                             "TRITONBACKEND_ModelInstanceModel"));
  void* state = nullptr;
  RETURN_IF_ERROR(FromTriton(TRITONBACKEND_ModelState(model, &state), "TRITONBACKEND_ModelState"));
  return static_cast<PluginModel*>(state);
}

Status Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
               uint32_t count) {
  ASSIGN_OR_RETURN(PluginModel* const model, ModelOf(instance));
  for (uint32_t i = 0; i < count; ++i) model->Execute(instance, requests[i]);
  return Status::Ok();
}

template <typename Function>
TRITONSERVER_Error* WithoutExceptions(const char* what, const Function& function) {
  try {
    return ToTriton(function());
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL,
                                 Caught(what, error).message().c_str());
  }
}

}  // namespace
}  // namespace inflight::triton_backend

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's.
extern "C" {

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  using namespace inflight::triton_backend;
  return WithoutExceptions("the backend cannot start", [&] { return InitializeBackend(backend); });
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  using namespace inflight::triton_backend;
  return WithoutExceptions("the backend cannot end", [&] { return FinalizeBackend(backend); });
}

TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend* /*backend*/,
                                                      TRITONBACKEND_BackendAttribute* attributes) {
  using namespace inflight::triton_backend;
  return WithoutExceptions("no attributes", [&] { return SetAttributes(attributes); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  using namespace inflight::triton_backend;
  return WithoutExceptions("the model cannot be loaded", [&] { return InitializeModel(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  using namespace inflight::triton_backend;
  return WithoutExceptions("the model cannot be unloaded", [&] { return FinalizeModel(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       const uint32_t request_count) {
  using namespace inflight::triton_backend;
  return WithoutExceptions("the requests cannot be run",
                           [&] { return Execute(instance, requests, request_count); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance* instance) {
  using namespace inflight::triton_backend;
  return WithoutExceptions("readiness is not known", [&]() -> inflight::Status {
    ASSIGN_OR_RETURN(const PluginModel* const model, ModelOf(instance));
    return model->CheckReady();
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
