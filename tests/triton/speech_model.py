# SPDX-License-Identifier: Apache-2.0
"""A model of Triton's Python backend as speech projects write it: it streams `tensorrt_llm`, works on each few ids that came,
stops early, and stops what it does not need by the tensor `stop`. One for the test of the plug-in.
"""

import uuid

import numpy as np
import triton_python_backend_utils as pb_utils

CHUNK = 4


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for chunk in self.chunks(request):
                sender.send(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("chunk", np.array([chunk], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def stop(self, inputs, request_id):
        inputs = inputs | {"stop": np.array([[True]])}
        for _ in self.call(inputs, request_id):
            pass

    def call(self, inputs, request_id):
        return pb_utils.InferenceRequest(
            model_name="tensorrt_llm",
            request_id=request_id,
            requested_output_names=["output_ids", "sequence_length"],
            inputs=[pb_utils.Tensor(name, value) for name, value in inputs.items()],
        ).exec(decoupled=True)

    def chunks(self, request):
        ids = pb_utils.get_input_tensor_by_name(request, "ids").as_numpy()
        num_chunks = int(pb_utils.get_input_tensor_by_name(request, "num_chunks").as_numpy().reshape(-1)[0])
        inputs = {
            "input_ids": ids,
            "input_lengths": np.array([[ids.shape[1]]], np.int32),
            "request_output_len": np.array([[900]], np.int32),
            "streaming": np.array([[True]]),
            "end_id": np.array([[-1]], np.int32),
        }
        request_id = str(uuid.uuid4())
        answers = self.call(inputs, request_id)
        waiting, sent = [], 0
        for answer in answers:
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            if not answer.output_tensors():
                continue
            length = int(pb_utils.get_output_tensor_by_name(answer, "sequence_length").as_numpy().reshape(-1)[0])
            waiting += pb_utils.get_output_tensor_by_name(answer, "output_ids").as_numpy().reshape(-1)[:length].tolist()
            if len(waiting) < CHUNK:
                continue
            yield waiting[:CHUNK]
            waiting, sent = waiting[CHUNK:], sent + 1
            if sent == num_chunks:
                self.stop(inputs, request_id)
                return
