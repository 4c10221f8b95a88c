export declare const serverBundle: string
export declare function buildStale(): Promise<void>
