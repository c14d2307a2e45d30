#include <memory>
#include <string_view>

#include "bindings.hpp"
#include "steppe/kernel.hpp"
#include "steppe/serialize.hpp"

namespace py = pybind11;

namespace steppe::bindings {

namespace {

py::bytes bytes_of(const Kernel& kernel, const std::optional<CachePool>& caches, std::int64_t kv_bytes,
                   const std::string& provenance) {
  const std::vector<std::uint8_t> bytes = serialize(Stored{kernel.plan(), caches, kv_bytes, provenance});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// (kernel, cache pool or None, bytes for caches or -1, provenance)
py::tuple kernel_in(const py::bytes& data) {
  const std::string_view view = data;
  try {
    Stored stored = deserialize({reinterpret_cast<const std::uint8_t*>(view.data()), view.size()});
    return py::make_tuple(std::make_shared<Kernel>(std::move(stored.plan)), stored.caches, stored.kv_bytes,
                          stored.provenance);
  } catch (const std::invalid_argument& e) {
    raise(e.what());
  }
}

}  // namespace

void bind_serialize(py::module_& m) {
  m.def("kernel_to_bytes", &bytes_of, py::arg("kernel"), py::arg("caches") = py::none(),
        py::arg("kv_bytes") = -1, py::arg("provenance") = "");
  m.def("kernel_from_bytes", &kernel_in, py::arg("data"));
  m.attr("FORMAT_VERSION") = kFormatVersion;
}

}  // namespace steppe::bindings
