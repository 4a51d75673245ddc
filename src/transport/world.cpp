#include "moelane/world.hpp"

#include "moelane/error.hpp"
#include "transport/world_impl.hpp"

namespace moelane {

int World::rank() const { return impl_->rank(); }
int World::size() const { return impl_->size(); }
const std::string& World::transport() const { return impl_->transport(); }

void World::all_gather(const void* mine, std::size_t bytes, void* all) {
  impl_->all_gather(mine, bytes, all);
}

void World::barrier() { impl_->barrier(); }

void detail::WorldImpl::barrier() {
  const char nothing = 0;
  std::vector<char> all(static_cast<std::size_t>(size()));
  all_gather(&nothing, 1, all.data());
}

void World::barrier(Stream stream) { impl_->barrier(stream); }

void detail::WorldImpl::barrier(Stream) {
  throw Error(ErrorKind::argument, "barrier(stream) is for ranks on GPUs, allowed with transport " +
                                       transport() + " is barrier()");
}

}  // namespace moelane
