// SPDX-License-Identifier: Apache-2.0
// What came after version 1.13 of the interface, which the plug-in does without (triton_api.h). A
// program without this file is a server of that version.
#include "fake_server.h"

using fake_triton::Live;

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute* attributes, bool is_enabled) {
  attributes->is_parallel = is_enabled;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request,
                                                        uint32_t* count) {
  *count = static_cast<uint32_t>(request->parameters.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request, uint32_t index,
                                                   const char** key,
                                                   TRITONSERVER_ParameterType* type,
                                                   const void** value) {
  const FakeParameter& parameter = request->parameters.at(index);
  *key = parameter.name.c_str();
  *type = parameter.type;
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_STRING:
    case TRITONSERVER_PARAMETER_BYTES:
      *value = parameter.text.c_str();
      break;
    case TRITONSERVER_PARAMETER_INT:
      *value = &parameter.number;
      break;
    case TRITONSERVER_PARAMETER_BOOL:
      *value = &parameter.flag;
      break;
    case TRITONSERVER_PARAMETER_DOUBLE:
      *value = &parameter.fraction;
      break;
  }
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(TRITONBACKEND_Request*,
                                                                      uint64_t* timeout_us) {
  *timeout_us = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory* factory,
                                                             bool* is_cancelled) {
  *is_cancelled = factory->request->is_cancelled;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetDoubleParameter(TRITONBACKEND_Response* response,
                                                             const char* name, double value) {
  response->parameters[name] = value;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics** statistics) {
  ++Live().statistics;
  *statistics = new TRITONBACKEND_ModelInstanceResponseStatistics;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics* statistics) {
  --Live().statistics;
  delete statistics;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics* statistics,
    TRITONBACKEND_ModelInstance* instance) {
  statistics->instance = instance;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics*, TRITONBACKEND_ResponseFactory*) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics*, TRITONSERVER_Error*) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics* statistics) {
  ++statistics->instance->num_responses;
  return nullptr;
}

}  // extern "C"
