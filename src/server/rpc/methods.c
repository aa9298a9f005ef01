/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/methods.h"

#include "server/rpc/start_gate.h"

const struct sp_method sp_methods[] = {
    {"initialize", NULL, sp_m_initialize, NULL},
    {"session/end", "session", sp_m_session_end, NULL},
    {"environment/info", "environment info", sp_m_environment_info, NULL},
    {"environment/status", "environment status", sp_m_environment_status, NULL},
    {"environmentConfig/read", "environment config", sp_m_environment_config_read, NULL},
    {"capabilityRoots/discoverV1", "capability discovery", sp_m_capability_roots_discover, NULL},
    {"capabilities/discoverV2", "capability discovery", sp_m_capabilities_discover, NULL},
    {"process/start", "exec", sp_m_process_start, sp_gated_exists},
    {"process/read", "exec", sp_m_process_read, NULL},
    {"process/write", "exec", sp_m_process_write, sp_gated_write},
    {"process/signal", "exec", sp_m_process_signal, sp_gated_signal},
    {"process/terminate", "exec", sp_m_process_terminate, sp_gated_terminate},
    {"process/resize", "exec", sp_m_process_resize, NULL},
    {"process/closeStdin", "exec", sp_m_process_close_stdin, sp_gated_write},
    {"process/list", "exec", sp_m_process_list, NULL},
    {"process/inspect", "exec", sp_m_process_inspect, NULL},
    {"process/attach", "exec", sp_m_process_attach, NULL},
    {"process/detach", "exec", sp_m_process_detach, NULL},
    {"fs/readFile", "filesystem", sp_m_fs_read_file, NULL},
    {"fs/writeFile", "filesystem", sp_m_fs_write_file, NULL},
    {"fs/createDirectory", "filesystem", sp_m_fs_create_directory, NULL},
    {"fs/getMetadata", "filesystem", sp_m_fs_get_metadata, NULL},
    {"fs/canonicalize", "filesystem", sp_m_fs_canonicalize, NULL},
    {"fs/readDirectory", "filesystem", sp_m_fs_read_directory, NULL},
    {"fs/walk", "filesystem", sp_m_fs_walk, NULL},
    {"fs/remove", "filesystem", sp_m_fs_remove, NULL},
    {"fs/copy", "filesystem", sp_m_fs_copy, NULL},
    {"fs/open", "filesystem", sp_m_fs_open, NULL},
    {"fs/readBlock", "filesystem", sp_m_fs_read_block, NULL},
    {"fs/writeBlock", "filesystem", sp_m_fs_write_block, NULL},
    {"fs/close", "filesystem", sp_m_fs_close, NULL},
    {"fs/watchMissing", "filesystem", sp_m_fs_watch_missing, NULL},
    {"http/request", "http", sp_m_http_request, NULL},
};

const size_t sp_method_count = sizeof sp_methods / sizeof sp_methods[0];
