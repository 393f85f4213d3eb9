// Calls tools of an MCP server with the official client: URL, Authorization, negotiation, then a name and JSON each.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, authorization, mode, ...calls] = process.argv.slice(2);
const client = new Client({ name: "tests", version: "1" }, { versionNegotiation: { mode } });
const requestInit = { headers: { Authorization: authorization } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
const { tools } = await client.listTools();
const { resources } = await client.listResources();
const read = await client.readResource({ uri: resources[0].uri });
const results = [];
while (calls.length) {
  const [name, given] = calls.splice(0, 2);
  results.push(await client.callTool({ name, arguments: JSON.parse(given) }));
}
const version = client.getNegotiatedProtocolVersion();
console.log(JSON.stringify({ version, tools: tools.map((tool) => tool.name), read, results }));
await client.close();
