import OpenAI from "openai"; import Anthropic from "@anthropic-ai/sdk";
const mode = process.argv[2];
const schema = {type: "object", properties: {a: {type: "integer"}}, required: ["a"]};
async function chat(stream) {
  const client = new OpenAI(); const messages = [{role: "user", content: "Count for ever."}];
  const tools = [{type: "function", function: {name: "add", parameters: schema}}];
  while (true) {
    let message;
    if (stream) { const s = client.chat.completions.stream({model: "gpt-4o", messages, tools}); message = (await s.finalChatCompletion()).choices[0].message; }
    else message = (await client.chat.completions.create({model: "gpt-4o", messages, tools})).choices[0].message;
    const calls = message.tool_calls ?? [];
    if (!calls.length) return message.content;
    messages.push({role: "assistant", tool_calls: calls}); for (const c of calls) messages.push({role: "tool", tool_call_id: c.id, content: "1"});
  }
}
async function responses() {
  const client = new OpenAI(); const input = [{role: "user", content: "Count for ever."}];
  while (true) {
    const r = await client.responses.create({model: "gpt-4o", input, tools: [{type: "function", name: "add", parameters: schema, strict: false}]});
    input.push(...r.output); const calls = r.output.filter(i => i.type === "function_call");
    if (!calls.length) return r.output_text;
    for (const c of calls) input.push({type: "function_call_output", call_id: c.call_id, output: "1"});
  }
}
async function messages(stream) {
  const client = new Anthropic(); const list = [{role: "user", content: "Count for ever."}];
  while (true) {
    const body = {model: "claude-sonnet-4-5", max_tokens: 1000, messages: list, tools: [{name: "add", input_schema: schema}]};
    const r = stream ? await client.messages.stream(body).finalMessage() : await client.messages.create(body);
    list.push({role: "assistant", content: r.content}); const calls = r.content.filter(b => b.type === "tool_use");
    if (!calls.length) return r.content.map(b => b.text).join("");
    list.push({role: "user", content: calls.map(c => ({type: "tool_result", tool_use_id: c.id, content: "1"}))});
  }
}
const modes = {chat: () => chat(false), stream: () => chat(true), responses, messages: () => messages(false), mstream: () => messages(true)};
console.log(await modes[mode]());
