import {generateText, streamText, tool, stepCountIs} from "ai"; import {openai} from "@ai-sdk/openai"; import {anthropic} from "@ai-sdk/anthropic"; import {z} from "zod";
const models = {chat: () => openai.chat("gpt-4o"), responses: () => openai.responses("gpt-4o"), messages: () => anthropic("claude-sonnet-4-5")};
const options = {model: models[process.argv[2]](), prompt: "Count for ever.", stopWhen: stepCountIs(1000), tools: {add: tool({description: "Add", inputSchema: z.object({a: z.number()}), execute: async () => "1"})}};
if (process.argv[3] === "stream") { const r = streamText(options); for await (const _ of r.textStream) {} console.log(await r.text); }
else console.log((await generateText(options)).text);
