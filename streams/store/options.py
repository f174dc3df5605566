"""How RocksDB is set up, each setting for a reason that was measured (docs/adr/0013-rocksdb-options.md).

All stores of a process share one block cache and one write-buffer manager, so memory stays bounded however many
partitions a worker owns. Only this module and `store` import rocksdict.
"""

import threading
from pathlib import Path

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    MemtableFactory,
    Options,
    Rdict,
    WriteBufferManager,
)


class SharedMemory:
    """Block cache and memtables of all stores of this process; memtables are accounted in the cache."""

    def __init__(self, *, cache_bytes: int = 96 << 20, write_buffer_bytes: int = 48 << 20) -> None:
        self._cache = Cache(cache_bytes)
        # Past its size the manager makes the stores flush. Stalling writers as well (True) can hang them all for good.
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(write_buffer_bytes, False, self._cache)

    def options(self) -> Options:
        """Options of one store. Bounds are per store, save those of the shared cache and buffers."""
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_block_size(4 << 10)
        blocks.set_bloom_filter(10, False)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(8 << 20)
        options.set_max_write_buffer_number(3)
        # The default, an eighth of the write buffer, would be taken by a store with a single row.
        options.set_arena_block_size(256 << 10)
        # Most keys that an authority asks for are absent (commands never seen): filters answer for files, this one for
        # what is not in a file yet. 160 KB a memtable, about 20 bits a key.
        options.set_memtable_prefix_bloom_ratio(0.02)
        options.set_memtable_whole_key_filtering(True)
        options.set_max_total_wal_size(64 << 20)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_max_open_files(256)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        return options

    def filling_options(self) -> Options:
        """Of a store that is written and hardly read: its memtables are lists, sorted only when they go to a file, and
        files are merged late."""
        options = self.options()
        options.set_memtable_factory(MemtableFactory.vector())
        options.set_allow_concurrent_memtable_write(False)
        options.set_compression_type(DBCompressionType.none())
        options.set_level_zero_file_num_compaction_trigger(16)
        options.set_level_zero_slowdown_writes_trigger(40)
        options.set_level_zero_stop_writes_trigger(60)
        return options

    def usage_bytes(self) -> int:
        """Of cache and memtables together."""
        return self._cache.get_usage()


_shared_lock = threading.Lock()
_shared: SharedMemory | None = None


def shared_memory() -> SharedMemory:
    """The one of this process, made at first use."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = SharedMemory()
        return _shared


def opened(path: Path, options: Options) -> Rdict:
    """The database at `path`, with these options whatever it was made with."""
    # Named as the column family's too: rocksdict 0.3.29 otherwise takes those with which the store was made, its cache no
    # longer the shared one.
    return Rdict(str(path), options=options, column_families={"default": options})
