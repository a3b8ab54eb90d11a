import {Agent, run, tool, setOpenAIAPI, setTracingDisabled} from "@openai/agents"; import {z} from "zod";
setTracingDisabled(true); setOpenAIAPI(process.argv[2]);
const agent = new Agent({name: "x", instructions: "Count.", model: "gpt-4o", tools: [tool({name: "add", description: "Add", parameters: z.object({a: z.number()}), execute: async () => "1"})]});
console.log((await run(agent, "Count for ever.", {maxTurns: 1000})).finalOutput);
