#include "bindings.hpp"
#include "steppe/transfer.hpp"

namespace py = pybind11;

namespace steppe::bindings {

void bind_transfer(py::module_& m) {
  m.def(
      "transfer_ns",
      [](double bytes, double floor_s, double bytes_per_s) {
        return laws::ns(laws::transfer_s(bytes, {floor_s, bytes_per_s}));
      },
      py::arg("bytes"), py::kw_only(), py::arg("floor_s"), py::arg("bytes_per_s"),
      "Nanoseconds of max(floor, bytes/rate); 0 for nothing to move.");
  m.def(
      "tier_ns",
      [](double bytes, double depth, double latency_s, double device_bytes_per_s, double host_bytes_per_s) {
        return laws::ns(laws::tier_s(bytes, depth, {latency_s, device_bytes_per_s, host_bytes_per_s}));
      },
      py::arg("bytes"), py::arg("depth"), py::kw_only(), py::arg("latency_s"), py::arg("device_bytes_per_s"),
      py::arg("host_bytes_per_s"),
      "Nanoseconds of one of `depth` transfers that share a tier's rate, capped by the host link (0 = no "
      "cap).");
  m.def(
      "admission_ns",
      [](double prompt, double per_request_s, double per_token_s) {
        return laws::ns(laws::admission_s(prompt, per_request_s, per_token_s));
      },
      py::arg("prompt"), py::kw_only(), py::arg("per_request_s"), py::arg("per_token_s"),
      "Nanoseconds the host spends to take a prompt in; 0 for an empty one.");
}

}  // namespace steppe::bindings
