/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_selftest: `sallyport mcp --selftest`: starts a server and calls it as a host would.
 */
#ifndef SP_CLI_MCP_SELFTEST_H
#define SP_CLI_MCP_SELFTEST_H

/* The server gets these arguments but for --selftest. Prints TAP; returns the exit status. */
int sp_mcp_selftest(int argc, char **argv);

#endif
