/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/methods.h"

const struct sp_method sp_methods[] = {
    {"initialize", NULL, sp_m_initialize},
    {"session/end", "session", sp_m_session_end},
    {"environment/info", "environment info", sp_m_environment_info},
    {"environment/status", "environment status", sp_m_environment_status},
    {"process/start", "exec", sp_m_process_start},
    {"process/read", "exec", sp_m_process_read},
    {"process/write", "exec", sp_m_process_write},
    {"process/signal", "exec", sp_m_process_signal},
    {"process/terminate", "exec", sp_m_process_terminate},
    {"process/resize", "exec", sp_m_process_resize},
    {"process/closeStdin", "exec", sp_m_process_close_stdin},
    {"process/list", "exec", sp_m_process_list},
    {"process/attach", "exec", sp_m_process_attach},
    {"process/detach", "exec", sp_m_process_detach},
};

const size_t sp_method_count = sizeof sp_methods / sizeof sp_methods[0];
