/** Why there is no id. code: for programs; waitMs: after how long another attempt may succeed, undefined: never. */
export interface Refusal extends Error {
  code: string;
  waitMs?: number;
}

export interface Options {
  /** redis://, rediss:// or, with node-redis 6, unix:// */
  url: string;
  pool: string;
  /** for people who look at the workers of the pool */
  label?: string;
  /** how long connect() and id() wait for an id, also while Redis does not reply; default: 60,000 */
  maxWaitMs?: number;
}

/** A worker id of a pool. Each process, and each Worker thread, connects for itself. */
export class Client {
  /** Claim a worker id. Rejects with a Refusal. */
  static connect(options: Options): Promise<Client>;
  readonly worker: number;
  /** An id. Waits for a clock or a full tick for at most 20 ms, and blocks meanwhile; throws a Refusal. */
  nextId(): bigint;
  /** Ids that increase. */
  nextIds(count: number): bigint[];
  /** An id; waits for it without blocking. */
  id(): Promise<bigint>;
  /** Release the worker id. */
  close(): Promise<void>;
}

/** Close the client when the program ends, or at SIGTERM and SIGINT. */
export function releaseAtExit(client: Client): void;
