export { map } from "./map.js";
export { Pool } from "./pool.js";
export { retry } from "./retry.js";
