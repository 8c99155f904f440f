// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/openapi.h"

#include <string_view>

#include "json/json_writer.h"

namespace inflight::cog {
namespace {

// Names and texts are those of what FastAPI makes of cog's routes and types, by which generators of
// clients name functions.
// clang-format off
constexpr std::string_view kPaths = R"({
  "/shutdown":{"post":{"summary":"Start Shutdown",
  "operationId":"start_shutdown_shutdown_post","responses":{"200":{
  "description":"Successful Response","content":{"application/json":{"schema":{
  "title":"Response Start Shutdown Shutdown Post"}}}}}}},
  "/":{"get":{"summary":"Root","operationId":"root__get","responses":{"200":{
  "description":"Successful Response","content":{"application/json":{"schema":{
  "title":"Response Root  Get"}}}}}}},
  "/health-check":{"get":{"summary":"Healthcheck",
  "operationId":"healthcheck_health_check_get","responses":{"200":{
  "description":"Successful Response","content":{"application/json":{"schema":{
  "title":"Response Healthcheck Health Check Get"}}}}}}},
  "/predictions":{"post":{"summary":"Predict",
  "description":"Run a single prediction on the model",
  "operationId":"predict_predictions_post","parameters":[{"required":false,"schema":{
  "title":"Prefer","type":"string"},"name":"prefer","in":"header"}],"requestBody":{"content":{
  "application/json":{"schema":{"$ref":"#/components/schemas/PredictionRequest"}}}},
  "responses":{"200":{"description":"Successful Response","content":{"application/json":{
  "schema":{"$ref":"#/components/schemas/PredictionResponse"}}}},"422":{
  "description":"Validation Error","content":{"application/json":{"schema":{
  "$ref":"#/components/schemas/HTTPValidationError"}}}}}}},
  "/predictions/{prediction_id}":{"put":{"summary":"Predict Idempotent",
  "description":"Run a single prediction on the model (idempotent creation).",
  "operationId":"predict_idempotent_predictions__prediction_id__put","parameters":[{
  "required":true,"schema":{"title":"Prediction ID","type":"string"},"name":"prediction_id",
  "in":"path"},{"required":false,"schema":{"title":"Prefer","type":"string"},"name":"prefer",
  "in":"header"}],"requestBody":{"content":{"application/json":{"schema":{
  "title":"Prediction Request","allOf":[{"$ref":"#/components/schemas/PredictionRequest"}]}}},
  "required":true},"responses":{"200":{"description":"Successful Response","content":{
  "application/json":{"schema":{"$ref":"#/components/schemas/PredictionResponse"}}}},"422":{
  "description":"Validation Error","content":{"application/json":{"schema":{
  "$ref":"#/components/schemas/HTTPValidationError"}}}}}}},
  "/predictions/{prediction_id}/cancel":{"post":{"summary":"Cancel",
  "description":"Cancel a running prediction",
  "operationId":"cancel_predictions__prediction_id__cancel_post","parameters":[{
  "required":true,"schema":{"title":"Prediction ID","type":"string"},"name":"prediction_id",
  "in":"path"}],"responses":{"200":{"description":"Successful Response","content":{
  "application/json":{"schema":{
  "title":"Response Cancel Predictions  Prediction Id  Cancel Post"}}}},"422":{
  "description":"Validation Error","content":{"application/json":{"schema":{
  "$ref":"#/components/schemas/HTTPValidationError"}}}}}}}
})";

// Beside Input.
constexpr std::string_view kSchemas = R"("HTTPValidationError":{"title":"HTTPValidationError","type":"object","properties":{"detail":{
"title":"Detail","type":"array","items":{"$ref":"#/components/schemas/ValidationError"}}}},
  "Output":{"title":"Output","type":"array","items":{"type":"string"},
  "x-cog-array-type":"iterator","x-cog-array-display":"concatenate"},
  "PredictionRequest":{"title":"PredictionRequest","type":"object","properties":{"input":{
  "$ref":"#/components/schemas/Input"},"id":{"title":"Id","type":"string"},"created_at":{
  "title":"Created At","type":"string","format":"date-time"},"output_file_prefix":{
  "title":"Output File Prefix","type":"string"},"webhook":{"title":"Webhook",
  "maxLength":65536,"minLength":1,"type":"string","format":"uri"},"webhook_events_filter":{
  "type":"array","items":{"$ref":"#/components/schemas/WebhookEvent"},"default":["start",
  "output","logs","completed"]}}},
  "PredictionResponse":{"title":"PredictionResponse","type":"object","properties":{"input":{
  "$ref":"#/components/schemas/Input"},"output":{"$ref":"#/components/schemas/Output"},"id":{
  "title":"Id","type":"string"},"version":{"title":"Version","type":"string"},"created_at":{
  "title":"Created At","type":"string","format":"date-time"},"started_at":{
  "title":"Started At","type":"string","format":"date-time"},"completed_at":{
  "title":"Completed At","type":"string","format":"date-time"},"logs":{"title":"Logs",
  "type":"string","default":""},"error":{"title":"Error","type":"string"},"status":{
  "$ref":"#/components/schemas/Status"},"metrics":{"title":"Metrics","type":"object"}}},
  "Status":{"title":"Status","enum":["starting","processing","succeeded","canceled","failed"],
  "type":"string","description":"An enumeration."},
  "ValidationError":{"title":"ValidationError","required":["loc","msg","type"],
  "type":"object","properties":{"loc":{"title":"Location","type":"array","items":{"anyOf":[{
  "type":"string"},{"type":"integer"}]}},"msg":{"title":"Message","type":"string"},"type":{
  "title":"Error Type","type":"string"}}},
  "WebhookEvent":{"title":"WebhookEvent","enum":["start","output","logs","completed"],
  "type":"string","description":"An enumeration."}
)";
// clang-format on

}  // namespace

std::string OpenApi(const InputDefaults& defaults) {
  std::string text;
  json::Writer out(text);
  out.BeginObject().Key("openapi").String("3.0.2").Key("info").BeginObject();
  out.Key("title").String("Cog").Key("version").String("0.1.0").EndObject();
  out.Key("paths").Raw(kPaths).Key("components").BeginObject().Key("schemas").BeginObject();
  out.Key("Input");
  WriteInputSchema(defaults, out);
  out.EndObject().EndObject().EndObject();
  constexpr size_t kClosing = 3;  // braces
  text.insert(text.size() - kClosing, "," + std::string(kSchemas));
  return text;
}

std::string DocsPage() {
  return R"(<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Cog</title></head>
<body>
<h1>Predictions</h1>
<table>
<tr><td>POST /predictions</td><td>a prediction; its object, once it has ended</td></tr>
<tr><td>PUT /predictions/{prediction_id}</td><td>the same under an id, which is begun once</td></tr>
<tr><td>POST /predictions/{prediction_id}/cancel</td><td>ends it</td></tr>
<tr><td>GET /health-check</td><td>whether predictions are taken</td></tr>
<tr><td>POST /shutdown</td><td>ends the server</td></tr>
<tr><td>GET <a href="/openapi.json">/openapi.json</a></td><td>all of it as OpenAPI</td></tr>
</table>
<p><code>Prefer: respond-async</code> answers at once, <code>Accept: text/event-stream</code> with
events as they come.</p>
<pre>curl -H 'Content-Type: application/json' -d '{"input": {"prompt": "2 + 3 ="}}' .../predictions</pre>
</body>
</html>
)";
}

}  // namespace inflight::cog
