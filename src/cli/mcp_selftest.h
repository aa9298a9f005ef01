/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_selftest: `sallyport mcp --selftest`: a server of our own, asked what a host would ask.
 */
#ifndef SP_CLI_MCP_SELFTEST_H
#define SP_CLI_MCP_SELFTEST_H

/* The verb's arguments; the server gets all but --selftest. A line for each thing tried; returns
 * the exit status. */
int sp_mcp_selftest(int argc, char **argv);

#endif
