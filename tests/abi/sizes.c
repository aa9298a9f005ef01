/* SPDX-License-Identifier: Apache-2.0 */
/* Prints where each member of the library's structs is, for comparison with symbols.txt. */
#include <sallyport.h>
#include <stdio.h>

#define SIZE(type) (void)printf("struct %s %zu\n", #type, sizeof(struct type))
#define MEMBER(type, member) \
    (void)printf("struct %s.%s %zu\n", #type, #member, offsetof(struct type, member))

int main(void)
{
    SIZE(sp_error);
    MEMBER(sp_error, sys);
    MEMBER(sp_error, msg);

    SIZE(sp_event);
    MEMBER(sp_event, kind);
    MEMBER(sp_event, session);
    MEMBER(sp_event, call);
    MEMBER(sp_event, at_ms);
    MEMBER(sp_event, ns);
    MEMBER(sp_event, exit_code);
    MEMBER(sp_event, is_failed);
    MEMBER(sp_event, argv);
    MEMBER(sp_event, cwd);
    MEMBER(sp_event, bytes);
    MEMBER(sp_event, byte_count);
    MEMBER(sp_event, stream);
    MEMBER(sp_event, receipt);

    SIZE(sp_receipt);
    MEMBER(sp_receipt, reason);
    MEMBER(sp_receipt, wall_ms);
    MEMBER(sp_receipt, user_ms);
    MEMBER(sp_receipt, system_ms);
    MEMBER(sp_receipt, max_rss_bytes);
    MEMBER(sp_receipt, peak_memory_bytes);
    MEMBER(sp_receipt, peak_processes);
    MEMBER(sp_receipt, read_bytes);
    MEMBER(sp_receipt, written_bytes);
    MEMBER(sp_receipt, voluntary_switches);
    MEMBER(sp_receipt, involuntary_switches);
    MEMBER(sp_receipt, major_faults);
    MEMBER(sp_receipt, stdout_bytes);
    MEMBER(sp_receipt, stderr_bytes);
    MEMBER(sp_receipt, pty_bytes);
    MEMBER(sp_receipt, dropped_bytes);

    SIZE(sp_question);
    MEMBER(sp_question, id);
    MEMBER(sp_question, topic);
    MEMBER(sp_question, call);
    MEMBER(sp_question, reason);
    MEMBER(sp_question, command);
    MEMBER(sp_question, argv);
    MEMBER(sp_question, cwd);
    MEMBER(sp_question, is_unconfined);
    MEMBER(sp_question, rule);
    MEMBER(sp_question, json);

    SIZE(sp_engine_options);
    MEMBER(sp_engine_options, program);
    MEMBER(sp_engine_options, config);
    MEMBER(sp_engine_options, on);
    MEMBER(sp_engine_options, sandbox);
    MEMBER(sp_engine_options, approve);
    MEMBER(sp_engine_options, user);
    MEMBER(sp_engine_options, event);
    MEMBER(sp_engine_options, ask);
    MEMBER(sp_engine_options, cwd);
    MEMBER(sp_engine_options, has_local_socket);

    SIZE(sp_answer);
    MEMBER(sp_answer, call);
    MEMBER(sp_answer, outcome);
    MEMBER(sp_answer, session);
    MEMBER(sp_answer, exit_code);
    MEMBER(sp_answer, signal);
    MEMBER(sp_answer, was_denied);
    MEMBER(sp_answer, has_lost_output);
    MEMBER(sp_answer, wall_ns);
    MEMBER(sp_answer, output);
    MEMBER(sp_answer, output_size);
    MEMBER(sp_answer, out);
    MEMBER(sp_answer, out_size);
    MEMBER(sp_answer, err);
    MEMBER(sp_answer, err_size);
    MEMBER(sp_answer, omitted);
    MEMBER(sp_answer, from);
    MEMBER(sp_answer, to);
    MEMBER(sp_answer, text);
    MEMBER(sp_answer, text_size);
    MEMBER(sp_answer, error);
    MEMBER(sp_answer, json);
    MEMBER(sp_answer, network_json);
    MEMBER(sp_answer, receipt);
    MEMBER(sp_answer, limits_json);

    SIZE(sp_limits);
    MEMBER(sp_limits, memory_bytes);
    MEMBER(sp_limits, pids);
    MEMBER(sp_limits, cpus);
    MEMBER(sp_limits, cpu_ms);
    MEMBER(sp_limits, wall_ms);
    MEMBER(sp_limits, output_bytes);
    MEMBER(sp_limits, open_files);
    MEMBER(sp_limits, file_size_bytes);
    MEMBER(sp_limits, is_best);

    SIZE(sp_exec_options);
    MEMBER(sp_exec_options, script);
    MEMBER(sp_exec_options, argv);
    MEMBER(sp_exec_options, cwd);
    MEMBER(sp_exec_options, env);
    MEMBER(sp_exec_options, shell);
    MEMBER(sp_exec_options, is_tty);
    MEMBER(sp_exec_options, has_stdin);
    MEMBER(sp_exec_options, is_no_login);
    MEMBER(sp_exec_options, is_unconfined);
    MEMBER(sp_exec_options, rows);
    MEMBER(sp_exec_options, cols);
    MEMBER(sp_exec_options, yield_ms);
    MEMBER(sp_exec_options, max_tokens);
    MEMBER(sp_exec_options, reason);
    MEMBER(sp_exec_options, environment);
    MEMBER(sp_exec_options, limits);

    SIZE(sp_run_options);
    MEMBER(sp_run_options, argv);
    MEMBER(sp_run_options, cwd);
    MEMBER(sp_run_options, env);
    MEMBER(sp_run_options, timeout_ms);
    MEMBER(sp_run_options, keeps_all);
    MEMBER(sp_run_options, is_silent);
    MEMBER(sp_run_options, environment);
    MEMBER(sp_run_options, limits);

    SIZE(sp_environment_options);
    MEMBER(sp_environment_options, name);
    MEMBER(sp_environment_options, on);
    MEMBER(sp_environment_options, sandbox);
    MEMBER(sp_environment_options, cwd);

    SIZE(sp_tool_options);
    MEMBER(sp_tool_options, tool);
    MEMBER(sp_tool_options, arguments);
    MEMBER(sp_tool_options, turn);

    SIZE(sp_session_info);
    MEMBER(sp_session_info, session);
    MEMBER(sp_session_info, call);
    MEMBER(sp_session_info, command);
    MEMBER(sp_session_info, cwd);
    MEMBER(sp_session_info, is_tty);
    MEMBER(sp_session_info, environment);
    return 0;
}
